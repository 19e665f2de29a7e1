"""What to do on a machine where bubblewrap does not work, in the words of error messages."""

INSTALL = "Install bubblewrap (apt install bubblewrap)"
# For error messages of bubblewrap such as "setting up uid map: Permission denied".
ALLOW_NAMESPACES = (
    "Allow user namespaces (on Ubuntu by an AppArmor profile for bwrap, such as "
    "bwrap-userns-restrict of the package apparmor-profiles, or by sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0; elsewhere by the sysctls "
    "user.max_user_namespaces and kernel.unprivileged_userns_clone)"
)

#!/bin/sh
# Resolve requirements/{cpu,gpu}.in into complete locks for Linux and Python 3.11, with uv, which is
# installed into an environment of its own. uv does not read pip's find-links: they are passed on.
# The CPU lock wants the CPU build of torch at hand (PIP_FIND_LINKS, or UV_EXTRA_INDEX_URL): with
# PyPI's build it would list the CUDA libraries too.
set -eu
cd "$(dirname "$0")"
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
python3.11 -m venv "$tool"
"$tool/bin/pip" install --quiet uv==0.13.8

for kind in cpu gpu; do
    "$tool/bin/uv" pip compile "$kind.in" --override "overrides-$kind.txt" \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        ${PIP_FIND_LINKS:+--find-links "$PIP_FIND_LINKS"} \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
        --quiet --output-file "$kind.txt"
done
# install.py chooses the build of torch.
sed -i 's/^torch==\([0-9.]*\)+cpu/torch==\1/' cpu.txt

// A click on a button in .copy copies a table's text. Without this script, the click opens a box with
// the text.
document.addEventListener("click", (event) => {
  const button = event.target.closest(".copy button");
  if (!button || !navigator.clipboard) return;
  event.preventDefault();
  const box = document.getElementById(button.getAttribute("popovertarget"));
  navigator.clipboard.writeText(box.querySelector("pre").textContent).then(
    () => {
      const status = button.closest(".copy").querySelector("[role=status]");
      status.textContent = `${button.textContent} copied`;
      setTimeout(() => (status.textContent = ""), 2000);
    },
    () => box.showPopover(),
  );
});

// The keyboard. None of it while somebody types.

const PLACES = { o: "/", j: "/jobs", d: "/dead", q: "/queues", s: "/schedules", w: "/workers" };
const HELP = [
  [["/"], "Search"],
  [["j", "k"], "Next and previous row"],
  [["x"], "Select the row"],
  [["Enter"], "Open the row"],
  [["r"], "Retry the row or the selection"],
  [["c"], "Cancel the row or the selection"],
  [["g", "o"], "Go to the overview"],
  [["g", "j"], "Go to the jobs"],
  [["g", "d"], "Go to the dead jobs"],
  [["g", "q"], "Go to the queues"],
  [["g", "s"], "Go to the schedules"],
  [["g", "w"], "Go to the workers"],
  [["?"], "This list"],
  [["Esc"], "Close"],
];
const SECOND_KEY_WITHIN = 1500; // milliseconds

let cursor = null; // the key of the row
let going = 0;

const rows = () => [...document.querySelectorAll("table.list tbody tr[data-key]")];
const row = () => rows().find((row) => row.dataset.key === cursor);

function mark() {
  for (const one of rows()) one.classList.toggle("cursor", one.dataset.key === cursor);
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((one) => one.dataset.key === cursor);
  const to = all[at < 0 && by < 0 ? all.length - 1 : Math.min(all.length - 1, Math.max(0, at + by))];
  cursor = to.dataset.key;
  mark();
  to.scrollIntoView({ block: "nearest" });
  to.querySelector('input[name="id"], a[href]')?.focus({ preventScroll: true });
}

function pick(on) {
  const box = row()?.querySelector('input[name="id"]');
  if (!box) return;
  box.checked = on ?? !box.checked;
  document.dispatchEvent(new CustomEvent("picked"));
}

// The button for this key: that of the row, or that of the page, which then is about the row or the selection.
function press(key) {
  const wanted = `[data-shortcut="${key}"]`;
  const button = row()?.querySelector(wanted) ?? document.querySelector(wanted);
  if (!button) return;
  if (button.matches("[data-needs-pick]") && !document.querySelector('input[name="id"]:checked')) pick(true);
  button.click();
}

function help() {
  const dialog = Object.assign(document.createElement("dialog"), { className: "wide" });
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = Object.assign(document.createElement("h2"), { id: "keys-title", textContent: "Keyboard shortcuts" });
  const list = Object.assign(document.createElement("dl"), { className: "keys" });
  for (const [keys, text] of HELP) {
    const term = document.createElement("dt");
    for (const key of keys) term.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
    list.append(term, Object.assign(document.createElement("dd"), { textContent: text }));
  }
  const form = Object.assign(document.createElement("form"), { method: "dialog", className: "buttons" });
  form.append(Object.assign(document.createElement("button"), { textContent: "Close", autofocus: true }));
  dialog.append(title, list, form);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

function search() {
  const box = document.querySelector('input[type="search"]');
  if (!box) return location.assign("/jobs");
  box.focus();
  box.select();
}

const KEYS = {
  "/": search,
  "?": help,
  j: () => move(1),
  k: () => move(-1),
  x: () => pick(),
  r: () => press("r"),
  c: () => press("c"),
  g: () => { going = Date.now(); },
};

document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  if (at.matches("input:not([type=checkbox]):not([type=radio]), select, textarea, [contenteditable]")) {
    if (event.key === "Escape") at.blur();
    return;
  }
  const gone = Date.now() - going < SECOND_KEY_WITHIN;
  going = 0;
  if (gone && PLACES[event.key]) location.assign(PLACES[event.key]);
  else if (event.key === "Enter" && row() && !at.matches("a, button, summary")) open_row();
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

function open_row() {
  row().querySelector("a[href]")?.click();
}

document.addEventListener("fresh", mark);
document.querySelector("[data-keys]")?.addEventListener("click", help);

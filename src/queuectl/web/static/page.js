// What a page does by itself: times that pass, forms that ask first, boxes that are ticked, colours that are chosen.

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";
const ahead = Number(meta("now")) - Date.now(); // the server's clock, not that of this machine, made the times
const now = () => Date.now() + ahead;

// -- times ----------------------------------------------------------------------------------------------

const UNITS = [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]];

function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [unit, size, lesser, part] of UNITS) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / part);
      return `${Math.floor(whole / size)}${unit}${rest ? ` ${rest}${lesser}` : ""}`;
    }
  }
  return `${whole}s`;
}

function relative(seconds) {
  const far = Math.abs(seconds);
  const [unit, size] = UNITS.find(([, size]) => far >= size) ?? ["s", 1];
  if (far < 1) return "now";
  const text = `${Math.floor(far / size)}${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick(root = document) {
  const moment = now();
  for (const time of root.querySelectorAll("time[datetime]:not([data-fixed])")) {
    if (!time.dataset.exact) {
      time.dataset.exact = time.title = time.textContent || time.title; // what it was, for whoever points at it
    }
    put(time, relative((moment - Date.parse(time.dateTime)) / 1000));
  }
  for (const element of root.querySelectorAll("[data-since]")) {
    put(element, span((moment - Date.parse(element.dataset.since)) / 1000));
  }
}

setInterval(tick, 1000);

// -- what has just come ---------------------------------------------------------------------------------

function freshen(root) {
  for (const input of root.querySelectorAll('input[name="csrf"]')) {
    if (!input.value) input.value = meta("csrf"); // what is drawn for everybody knows nobody's
  }
  tick(root);
  count();
}

document.addEventListener("fresh", (event) => freshen(event.target));

// -- asking first ---------------------------------------------------------------------------------------

const asked = new WeakSet();

document.addEventListener("submit", (event) => {
  const form = event.target;
  const question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
  if (!question || asked.delete(form)) return;
  event.preventDefault();
  ask(question, event.submitter, () => {
    asked.add(form);
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "sure", value: "yes" }));
    form.requestSubmit(event.submitter);
  });
});

function ask(question, button, then) {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "question");
  const danger = button?.classList.contains("danger");
  const text = Object.assign(document.createElement("h2"), { id: "question", textContent: question });
  const form = Object.assign(document.createElement("form"), { method: "dialog", className: "buttons" });
  const no = Object.assign(document.createElement("button"), { value: "", textContent: "No, leave it" });
  const yes = Object.assign(document.createElement("button"), {
    value: "yes",
    className: danger ? "danger" : "primary",
    textContent: `Yes, ${button?.textContent.trim().toLowerCase() || "do it"}`,
    autofocus: true,
  });
  form.append(no, yes);
  dialog.append(text, form);
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    const yes = dialog.returnValue === "yes";
    dialog.remove();
    button?.focus();
    if (yes) then();
  });
  dialog.showModal();
}

// A menu closes when something else is wanted.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// -- choosing rows --------------------------------------------------------------------------------------

const boxes = () => [...document.querySelectorAll('tbody input[type="checkbox"][name="id"]')];
let last = null; // the value of the box that was ticked last

document.addEventListener("click", (event) => {
  const box = event.target;
  if (!box.matches?.('input[type="checkbox"]')) return;
  if (box.matches("[data-all]")) {
    for (const one of boxes()) one.checked = box.checked;
  } else if (box.name === "id") {
    const all = boxes();
    const from = all.findIndex((one) => one.value === last);
    const to = all.indexOf(box);
    if (event.shiftKey && from >= 0) {
      for (const one of all.slice(Math.min(from, to), Math.max(from, to) + 1)) one.checked = box.checked;
    }
    last = box.value;
  }
  count();
});

function count() {
  const all = boxes();
  const n = all.filter((box) => box.checked).length;
  for (const box of document.querySelectorAll("input[data-all]")) {
    box.checked = n > 0 && n === all.length;
    box.indeterminate = n > 0 && n < all.length;
  }
  for (const element of document.querySelectorAll("[data-picked]")) put(element, n ? `${n} selected` : "");
  for (const button of document.querySelectorAll("button[data-needs-pick]")) button.disabled = n === 0;
}

document.addEventListener("picked", count);

// -- colours --------------------------------------------------------------------------------------------

document.querySelector("form.themes")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const chosen = event.submitter.value;
  const fixed = chosen !== "system";
  const kept = fixed ? 400 * 86400 : 0;
  document.cookie = `queuectl_theme=${fixed ? chosen : ""}; path=/; samesite=strict; max-age=${kept}`;
  if (fixed) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  for (const button of event.target.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button === event.submitter));
  }
});

freshen(document);
document.querySelector(".places [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Keeps what is on the screen fresh, as long as somebody looks at it.

const SILENCE = 40_000; // milliseconds; the server says something at least every 15 seconds
const PAUSES = [500, 1000, 2000, 4000, 8000, 15_000, 30_000];
const WORDS = { live: "Live", paused: "Paused", reconnecting: "Reconnecting", trouble: "No data" };

const indicator = document.getElementById("live");
let source = null;
let heard = 0;
let failures = 0;
let again = null;
let waiting = {}; // what came while somebody was busy with that part of the page

function has_regions() {
  const comments = document.createTreeWalker(document.body, NodeFilter.SHOW_COMMENT);
  while (comments.nextNode()) {
    if (comments.currentNode.data.startsWith("live ")) return true;
  }
  return false;
}

function say(state, why = "") {
  indicator.hidden = false;
  indicator.title = why;
  if (indicator.dataset.is === state) return;
  indicator.dataset.is = state;
  indicator.textContent = WORDS[state];
}

// -- the stream -----------------------------------------------------------------------------------------

function open() {
  close();
  if (document.hidden) return say("paused");
  if (!indicator.dataset.is || failures) say("reconnecting");
  heard = Date.now();
  source = new EventSource(`/live?page=${encodeURIComponent(location.pathname + location.search)}`);
  source.addEventListener("regions", (event) => {
    hear("live");
    waiting = { ...waiting, ...JSON.parse(event.data) };
    show();
  });
  source.addEventListener("trouble", (event) => hear("trouble", JSON.parse(event.data)));
  source.addEventListener("here", () => hear());
  source.addEventListener("error", lose);
}

function hear(state, why) {
  heard = Date.now();
  failures = 0;
  if (state) say(state, why);
}

function close() {
  clearTimeout(again);
  source?.close();
  source = null;
}

async function lose() {
  close();
  if (document.hidden) return;
  say("reconnecting");
  const pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
  failures += 1;
  again = setTimeout(open, pause * (0.75 + Math.random() / 2)); // not all tabs at the same moment
  if (failures > 1 && (await logged_out())) location.reload();
}

async function logged_out() {
  try {
    return (await fetch("/", { method: "HEAD", redirect: "manual" })).type === "opaqueredirect";
  } catch {
    return false; // the server is not there
  }
}

// -- putting it on the page -----------------------------------------------------------------------------

function show() {
  for (const [name, html] of Object.entries(waiting)) {
    const element = document.getElementById(name);
    if (element && busy(element)) continue;
    delete waiting[name];
    if (!element) continue;
    const drawn = document.createElement("template");
    drawn.innerHTML = html;
    morph(element, drawn.content);
    element.dispatchEvent(new CustomEvent("fresh", { bubbles: true }));
  }
}

let pressed = null; // where the mouse button is held down: a click must not lose its target
document.addEventListener("pointerdown", (event) => { pressed = event.target; });
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => setTimeout(() => { pressed = null; }));
}

function busy(element) {
  const typing = document.activeElement?.matches("input:not([type=checkbox]):not([type=radio]), select, textarea");
  const selection = getSelection();
  return (
    Boolean(document.querySelector("dialog[open]")) ||
    (typing && element.contains(document.activeElement)) ||
    Boolean(element.querySelector("details.menu[open]")) ||
    (pressed !== null && element.contains(pressed)) ||
    (!selection.isCollapsed && selection.containsNode(element, true))
  );
}

// Change only what is different, so that focus, scrolling, ticked boxes and what is unfolded stay as they are.
function morph(from, to) {
  const keyed = new Map();
  for (const child of from.children) {
    if (child.dataset.key) keyed.set(child.dataset.key, child);
  }
  let at = from.firstChild;
  for (const fresh of [...to.childNodes]) {
    const key = fresh.dataset?.key;
    let old = key ? keyed.get(key) : at;
    if (key && old && old !== at) {
      // Take away what stands between, rather than move this one: an element that is moved loses the focus.
      let between = at;
      const skipped = [];
      while (between && between !== old) {
        skipped.push(between);
        between = between.nextSibling;
      }
      const in_the_way = between === old && !skipped.some((node) => still_wanted(node, to));
      if (in_the_way) for (const node of skipped) node.remove();
      else from.insertBefore(old, at);
      at = old;
    }
    if (!key && old && (old.nodeName !== fresh.nodeName || old.dataset?.key)) old = null;
    if (!old) {
      from.insertBefore(fresh, at);
      continue;
    }
    patch(old, fresh);
    if (key) keyed.delete(key);
    at = old.nextSibling;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function still_wanted(node, to) {
  const key = node.dataset?.key;
  return Boolean(key) && [...to.children].some((child) => child.dataset.key === key);
}

function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morph(old, fresh);
}

// -- when to ---------------------------------------------------------------------------------------------

if (indicator && has_regions()) {
  open();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      say("paused");
    } else {
      open();
    }
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  addEventListener("online", () => !document.hidden && open());
  setInterval(() => {
    if (source && Date.now() - heard > SILENCE) lose();
    show();
  }, 1000);
}

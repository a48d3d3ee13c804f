// The log of a job: goes on while the job prints, and can be searched.

const POLL = 1000; // milliseconds; a log that grows is no change of the queue, so the live stream may be late
const MOST_LINES = 10_000; // on the page
const MOST_FOUND = 5000;
const NEAR = 24; // pixels from the end that still count as the end

const $ = (id) => document.getElementById(id);
const log = $("log");
const kept = {
  get: (name) => { try { return localStorage.getItem(`queuectl_${name}`); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem(`queuectl_${name}`, value); } catch { /* it is not kept, then */ } },
};

for (const element of document.querySelectorAll("[data-js]")) element.hidden = false;

// -- copying --------------------------------------------------------------------------------------------

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard; // browsers have it only where nobody can listen
  const label = button.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText($(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}

// -- going on -------------------------------------------------------------------------------------------

const follow = $("follow");
const sticks = () => follow?.checked;
const running = () => $("logsize").querySelector("[data-running]")?.dataset.running === "1";
let asking = false;
let again = false;

function to_the_end() {
  log.scrollTop = log.scrollHeight;
}

async function more() {
  if (!log.dataset.more) return;
  again = asking;
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch(`${log.dataset.more}?at=${encodeURIComponent(log.dataset.at)}`);
    if (answer.ok) add(answer.headers, await answer.text());
  } catch {
    // the server is not there; the page says so, and the next look is soon
  } finally {
    asking = false;
  }
  if (again) await more();
}

function add(headers, html) {
  log.dataset.at = headers.get("Log-At");
  if (!html) return;
  if (headers.get("Log-Anew")) log.replaceChildren(); // its middle was cut out: these are its last lines
  else log.querySelector(".open")?.remove(); // it comes again, longer
  const drawn = document.createElement("template");
  drawn.innerHTML = html;
  log.append(drawn.content);
  const before = log.scrollHeight;
  while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
  $("nothing").hidden = true;
  if (sticks()) to_the_end();
  else log.scrollTop -= before - log.scrollHeight;
  if (field.value) search(false);
}

if (follow) {
  if (kept.get("follow") === "no" || location.hash.startsWith("#L")) follow.checked = false;
  follow.addEventListener("change", () => {
    kept.set("follow", follow.checked ? "yes" : "no");
    if (follow.checked) to_the_end();
  });
  let top = 0;
  log.addEventListener("scroll", () => {
    const at_end = log.scrollTop + log.clientHeight >= log.scrollHeight - NEAR;
    if (log.scrollTop < top && !at_end) follow.checked = false; // somebody wants to read
    else if (at_end && kept.get("follow") !== "no") follow.checked = true;
    top = log.scrollTop;
  });
  if (sticks()) to_the_end();
  new MutationObserver(more).observe($("logsize"), { attributes: true, childList: true, subtree: true });
  setInterval(() => { if (running() && !document.hidden) more(); }, POLL);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) more(); });
}

const wrap = $("wrap");
wrap.checked = kept.get("wrap") !== "no";
function show_wrapped() {
  log.classList.toggle("nowrap", !wrap.checked);
}
wrap.addEventListener("change", () => {
  kept.set("wrap", wrap.checked ? "yes" : "no");
  show_wrapped();
});
show_wrapped();

// -- lines that are pointed at --------------------------------------------------------------------------

function pointed() {
  const [, first, last] = location.hash.match(/^#L(\d+)(?:-L(\d+))?$/) ?? [];
  return first ? [Number(first), Number(last ?? first)].sort((a, b) => a - b) : null;
}

function point() {
  for (const line of log.querySelectorAll(".marked")) line.classList.remove("marked");
  const range = pointed();
  if (!range) return;
  const [first, last] = range;
  const start = $(`L${first}`);
  const wanted = new URLSearchParams(location.search).get("line");
  if (!start && log.childElementCount && wanted !== String(first)) {
    location.replace(`?line=${first}${location.hash}`); // it is in another part
    return;
  }
  for (let number = first; number <= last && $(`L${number}`); number += 1) $(`L${number}`).classList.add("marked");
  start?.scrollIntoView({ block: "nearest" });
}

log.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-n]");
  const from = pointed();
  if (!link) return;
  if (follow) follow.checked = false;
  if (!event.shiftKey || !from) return;
  event.preventDefault();
  const [first, last] = [from[0], Number(link.dataset.n)].sort((a, b) => a - b);
  location.hash = `L${first}-L${last}`;
});
addEventListener("hashchange", point);
point();

// -- searching ------------------------------------------------------------------------------------------

const field = $("find");
const highlights = globalThis.Highlight ? CSS.highlights : null;
let found = []; // ranges
let here = -1;

function ranges_in(line, word) {
  const texts = [];
  const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
  let whole = "";
  while (walker.nextNode()) {
    texts.push([whole.length, walker.currentNode]);
    whole += walker.currentNode.data;
  }
  whole = whole.toLowerCase();
  const place = (offset) => {
    const [start, node] = texts.findLast(([start]) => start <= offset);
    return [node, Math.min(offset - start, node.length)];
  };
  const ranges = [];
  for (let at = whole.indexOf(word); at >= 0; at = whole.indexOf(word, at + word.length)) {
    const range = document.createRange();
    range.setStart(...place(at));
    range.setEnd(...place(at + word.length));
    ranges.push(range);
  }
  return ranges;
}

function search(jump) {
  const word = field.value.toLowerCase();
  found = [];
  for (const line of log.children) {
    const ranges = word && found.length < MOST_FOUND ? ranges_in(line, word) : [];
    line.classList.toggle("hit", ranges.length > 0);
    found.push(...ranges);
  }
  highlights?.set("found", new Highlight(...found));
  if (jump) here = found.length - 1; // the newest first: it is what is looked at
  here = Math.min(here, found.length - 1);
  show_match(jump);
}

function show_match(jump) {
  const match = found[here];
  $("found").textContent = !field.value ? "" : match ? `${here + 1} of ${found.length}` : "Not found";
  if (!match) {
    highlights?.delete("found-here");
    return;
  }
  const current = highlights && new Highlight(match);
  if (current) {
    current.priority = 1;
    highlights.set("found-here", current);
  }
  if (!jump) return;
  if (follow) follow.checked = false;
  const box = match.getBoundingClientRect();
  const frame = log.getBoundingClientRect();
  if (box.top < frame.top || box.bottom > frame.bottom) log.scrollTop += box.top - frame.top - frame.height / 2;
}

function step(by) {
  if (!found.length) return;
  here = (here + by + found.length) % found.length;
  show_match(true);
}

field.addEventListener("input", () => search(true));
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  step(event.shiftKey ? -1 : 1);
});
$("find-next").addEventListener("click", () => step(1));
$("find-previous").addEventListener("click", () => step(-1));

// -- the graph ------------------------------------------------------------------------------------------

const node = document.querySelector(".dag .here rect");
const frame = node?.closest(".dag-box");
if (frame) frame.scrollLeft = node.x.baseVal.value + node.width.baseVal.value / 2 - frame.clientWidth / 2;

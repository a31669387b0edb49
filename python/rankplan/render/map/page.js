"use strict";
const bands = [...document.querySelectorAll(".band")];
const buttons = [...document.querySelectorAll("button")];
const tip = document.getElementById("tip");
const chosen = new Set();

// Without scripts, a band has a title. With scripts, its tooltip appears at once, also for the keyboard.
for (const band of bands) {
  band.dataset.tip = band.title;
  band.setAttribute("aria-label", band.title);
  band.removeAttribute("title");
}

function filter() {
  for (const button of buttons) button.setAttribute("aria-pressed", chosen.has(button.dataset.component));
  for (const band of bands) band.classList.toggle("off", chosen.size > 0 && !chosen.has(band.dataset.component));
}

function toggle(component) {
  if (!chosen.delete(component)) chosen.add(component);
  filter();
  const names = [...chosen].map(encodeURIComponent).join(",");
  history.replaceState(null, "", location.pathname + location.search + (names && "#filter=" + names));
}

function decoded(name) {
  try { return decodeURIComponent(name); } catch { return name; }
}

function read() {
  chosen.clear();
  const names = location.hash.startsWith("#filter=") ? location.hash.slice(8).split(",").map(decoded) : [];
  for (const button of buttons) if (names.includes(button.dataset.component)) chosen.add(button.dataset.component);
  filter();
}

function show(band) {
  tip.textContent = band.dataset.tip;
  tip.hidden = false;
  const box = band.getBoundingClientRect();
  const below = box.bottom + 6 + tip.offsetHeight <= innerHeight;
  tip.style.top = (below ? box.bottom + 6 : Math.max(4, box.top - 6 - tip.offsetHeight)) + "px";
  tip.style.left = Math.max(4, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 4)) + "px";
}

function hide() {
  tip.hidden = true;
}

// One band at a time is in the tab order; an arrow key moves to the nearest band in its direction.
function beside(band, dx, dy) {
  const middle = (one) => { const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; };
  const [x, y] = middle(band);
  let best = null, least = Infinity;
  for (const other of bands) {
    const [right, down] = [middle(other)[0] - x, middle(other)[1] - y];
    const ahead = right * dx + down * dy, aside = Math.abs(right * dy + down * dx);
    if (ahead > 4 && ahead + 3 * aside < least) [best, least] = [other, ahead + 3 * aside];
  }
  return best;
}

const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (tip.hidden) [...chosen].forEach(toggle);
    hide();
  }
  const band = event.target.closest?.(".band");
  const next = band && arrows[event.key] && beside(band, ...arrows[event.key]);
  if (next) {
    event.preventDefault();
    next.focus();
  }
});
addEventListener("focusin", (event) => {
  const band = event.target.closest?.(".band");
  if (!band) return hide();
  bands.forEach((other) => { other.tabIndex = other === band ? 0 : -1; });
  show(band);
});
addEventListener("pointerover", (event) => {
  const band = event.target.closest?.(".band");
  band ? show(band) : hide();
});
addEventListener("scroll", hide, true);
addEventListener("hashchange", read);
buttons.forEach((button) => button.addEventListener("click", () => toggle(button.dataset.component)));
if (bands.length) bands[0].tabIndex = 0;
read();

// Pointing at a mark, or moving to it with the arrow keys, shows its label. Legend buttons hide lines.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  let current = null;

  const visible = (mark) => !mark.closest(".off");
  const marksOf = (group) => [...group.querySelectorAll("[data-mark]")].filter(visible);

  function show(mark) {
    if (current) current.classList.remove("active");
    current = mark;
    mark.classList.add("active");
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    place(mark);
  }

  function place(mark) {
    const at = (mark.querySelector(".dot") || mark).getBoundingClientRect();
    const box = tip.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(at.left + at.width / 2 - box.width / 2, width - box.width - 8));
    const above = at.top - box.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 8 ? at.bottom + 10 : above}px`;
  }

  function hide() {
    if (current) current.classList.remove("active");
    current = null;
    tip.hidden = true;
  }

  function nearest(group, event) {
    let best = null, least = Infinity;
    for (const mark of marksOf(group)) {
      const at = mark.getBoundingClientRect();
      const distance = Math.hypot(at.left + at.width / 2 - event.clientX, at.top + at.height / 2 - event.clientY);
      if (distance < least) [best, least] = [mark, distance];
    }
    return best;
  }

  // Up and down change lines, to the mark nearest in x; otherwise arrows follow the order on the page.
  function step(group, mark, key) {
    const marks = marksOf(group), i = marks.indexOf(mark), last = marks.length - 1;
    const line = mark.closest("[data-line]");
    if (line && (key === "ArrowUp" || key === "ArrowDown")) {
      const lines = [...new Set(marks.map((other) => other.closest("[data-line]")))];
      const next = lines[lines.indexOf(line) + (key === "ArrowDown" ? 1 : -1)];
      const x = (other) => other.getBoundingClientRect().left;
      return next && marks.filter((other) => next.contains(other))
        .reduce((a, b) => Math.abs(x(b) - x(mark)) < Math.abs(x(a) - x(mark)) ? b : a);
    }
    return {
      ArrowRight: marks[Math.min(i + 1, last)], ArrowDown: marks[Math.min(i + 1, last)],
      ArrowLeft: marks[Math.max(i - 1, 0)], ArrowUp: marks[Math.max(i - 1, 0)],
      Home: marks[0], End: marks[last],
    }[key];
  }

  for (const group of document.querySelectorAll("[data-marks]")) {
    const target = (event) =>
      group.dataset.marks === "nearest" ? nearest(group, event) : event.target.closest("[data-mark]");
    const point = (event) => {
      const mark = target(event);
      if (mark && mark !== current) show(mark);
    };
    group.addEventListener("pointermove", point);
    group.addEventListener("click", point);
    group.addEventListener("pointerleave", hide);
    group.addEventListener("keydown", (event) => {
      const next = step(group, event.target, event.key);
      if (!next) return;
      event.preventDefault();
      event.target.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  for (const button of document.querySelectorAll("[data-toggle]")) {
    button.addEventListener("click", () => {
      const chart = button.closest(".lines");
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      chart.querySelector(`[data-line="${button.dataset.toggle}"]`).classList.toggle("off", !on);
      const group = chart.querySelector("[data-marks]");
      if (!marksOf(group).some((mark) => mark.getAttribute("tabindex") === "0")) {
        marksOf(group).slice(0, 1).forEach((mark) => mark.setAttribute("tabindex", "0"));
      }
    });
  }

  // On the document, because Chromium puts an <svg> with focus listeners of its own in the tab order.
  document.addEventListener("focusin", (event) => event.target.matches("[data-mark]") && show(event.target));
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  const follow = () => current && place(current);
  document.addEventListener("scroll", follow, { passive: true });
  window.addEventListener("resize", follow);

  // Paper shows every table; the screen gets its folds back afterwards.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((fold) => { fold.open = true; });
    hide();
  });
  window.addEventListener("afterprint", () => opened.forEach((fold) => { fold.open = false; }));
})();

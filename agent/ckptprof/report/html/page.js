(() => {
  "use strict";
  const root = document.documentElement, plot = document.querySelector(".plot");
  root.classList.add("live");
  if (plot) {
    const drawings = [...plot.querySelectorAll(".lane svg")], axis = plot.querySelector(".axis svg");
    const whole = [0, 1000];
    const seconds = Number((BigInt(plot.dataset.end) - BigInt(plot.dataset.start)) / 1000n) / 1e6;
    let low = 0, high = 1000, from = null, choice = null;
    const place = event => {
      const box = drawings[0].getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    const zoom = (a, b) => {
      [low, high] = [a, b];
      for (const one of drawings) {
        const box = one.viewBox.baseVal;
        one.setAttribute("viewBox", `${low} 0 ${high - low} ${box.height}`);
      }
      for (const one of axis.querySelectorAll("text")) {
        const now = (one.dataset.at ??= parseFloat(one.getAttribute("x")) * 10);
        const x = (now - low) / (high - low) * 100;
        one.setAttribute("x", `${x}%`);
        one.setAttribute("visibility", x < 0 || x > 100 ? "hidden" : "visible");
      }
      axis.setAttribute("aria-label", `time, ${((high - low) / 1000 * seconds).toFixed(2)} s of ${seconds.toFixed(2)} s`);
    };
    plot.addEventListener("pointerdown", event => {
      if (event.target.closest(".lane")) { from = place(event); event.preventDefault(); }
    });
    plot.addEventListener("pointermove", event => {
      if (from === null) return;
      const outer = plot.getBoundingClientRect(), box = drawings[0].getBoundingClientRect(), to = place(event);
      choice ??= plot.appendChild(Object.assign(document.createElement("div"), {className: "choice"}));
      choice.style.left = `${box.left - outer.left + Math.min(from, to) * box.width}px`;
      choice.style.width = `${Math.abs(to - from) * box.width}px`;
    });
    addEventListener("pointerup", event => {
      if (from === null) return;
      const to = place(event), span = high - low;
      if (Math.abs(to - from) > 0.005) zoom(low + Math.min(from, to) * span, low + Math.max(from, to) * span);
      else if (event.target.dataset && event.target.dataset.id) location.hash = `row-${event.target.dataset.id}`;
      choice?.remove();
      choice = from = null;
    });
    plot.addEventListener("dblclick", () => zoom(...whole));
    addEventListener("keydown", event => { if (event.key === "Escape") zoom(...whole); });
    addEventListener("beforeprint", () => zoom(...whole));
  }
  const table = document.getElementById("table");
  for (const [index, head] of [...(table?.tHead.rows[0].cells ?? [])].entries()) {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending", number = head.classList.contains("number");
      const key = body => body.rows[0].cells[index].dataset.key;
      const bodies = [...table.tBodies].sort((a, b) =>
        (number ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b))) * (up ? 1 : -1));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      table.append(...bodies);
    });
  }
  const open = () => document.querySelector(`${location.hash || "#none"} details`)?.setAttribute("open", "");
  addEventListener("hashchange", open);
  open();
})();

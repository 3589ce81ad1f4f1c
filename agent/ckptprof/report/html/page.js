(() => {
  "use strict";
  const root = document.documentElement, plot = document.querySelector(".plot[data-start]");
  root.classList.add("live");
  if (plot) {
    const drawings = [...document.querySelectorAll("#timeline .lane svg[viewBox]")], axis = plot.querySelector(".axis svg");
    const written = [...axis.querySelectorAll("text")], all = document.getElementById("all");
    const milliseconds = text => Number(BigInt(text) / 1000n) / 1000;
    const begin = milliseconds(plot.dataset.start), length = milliseconds(plot.dataset.end) - begin;
    const offset = plot.dataset.offset * 1000;
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    for (const seconds of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]) {
      steps.push(seconds * 1000);
    }
    let low = 0, high = 1000, from = null, choice = null;
    const cursor = plot.appendChild(document.createElement("div")), says = cursor.appendChild(document.createElement("span"));
    cursor.className = "cursor";
    cursor.hidden = true;
    const box = () => drawings[0].getBoundingClientRect();
    const place = event => Math.min(1, Math.max(0, (event.clientX - box().left) / box().width));
    const clock = (at, step) => {
      const text = new Date(at + offset).toISOString();
      return step >= 86400000 ? text.slice(length < 31536e6 ? 5 : 0, 10) : text.slice(11, step >= 60000 ? 16 : step >= 1000 ? 19 : 23);
    };
    const ticks = () => {
      if (low === 0 && high === 1000) return written;
      const first = begin + low / 1000 * length, span = (high - low) / 1000 * length, made = [];
      const step = steps.find(one => span / one <= 6) ?? Math.ceil(span / 6 / 604800000) * 604800000;
      for (let at = Math.ceil((first + offset) / step) * step - offset; at <= first + span; at += step) {
        const share = (at - first) / span * 100, text = written[0].cloneNode();
        text.setAttribute("x", `${share}%`);
        text.setAttribute("text-anchor", share < 4 ? "start" : share > 96 ? "end" : "middle");
        text.textContent = clock(at, step);
        made.push(text);
      }
      return made;
    };
    const zoom = (a, b) => {
      [low, high] = [a, b];
      for (const one of drawings) one.setAttribute("viewBox", `${low} 0 ${high - low} ${one.viewBox.baseVal.height}`);
      if (written.length) axis.replaceChildren(...ticks());
      all.hidden = low === 0 && high === 1000;
      plot.classList.toggle("zoomed", !all.hidden);
    };
    const whole = () => zoom(0, 1000);
    plot.addEventListener("pointerdown", event => {
      if (event.target.closest(".lane") && drawings.length) { from = place(event); event.preventDefault(); }
    });
    plot.addEventListener("pointermove", event => {
      if (!drawings.length) return;
      const left = box().left - plot.getBoundingClientRect().left, to = place(event);
      cursor.hidden = !event.target.closest(".lane");
      cursor.style.left = `${left + to * box().width}px`;
      says.textContent = clock(begin + (low + to * (high - low)) / 1000 * length, (high - low) / 1000 * length / 100);
      if (from === null) return;
      choice ??= plot.appendChild(Object.assign(document.createElement("div"), {className: "choice"}));
      choice.style.left = `${left + Math.min(from, to) * box().width}px`;
      choice.style.width = `${Math.abs(to - from) * box().width}px`;
    });
    plot.addEventListener("pointerleave", () => { cursor.hidden = true; });
    const drop = () => { choice?.remove(); choice = from = null; };
    addEventListener("pointercancel", drop);
    addEventListener("pointerup", event => {
      if (from === null) return;
      const to = place(event), span = high - low;
      if (Math.abs(to - from) > 0.005) zoom(low + Math.min(from, to) * span, low + Math.max(from, to) * span);
      else if (event.target.dataset && event.target.dataset.id) location.hash = `row-${event.target.dataset.id}`;
      drop();
    });
    plot.addEventListener("dblclick", whole);
    all.addEventListener("click", whole);
    addEventListener("keydown", event => { if (event.key === "Escape") whole(); });
    addEventListener("beforeprint", whole);
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
})();

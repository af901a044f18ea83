// Reloads pages after changes, and moves between tokens with the arrow keys.
"use strict";
(() => {
  const REST_MS = 3000;
  const live = () => document.getElementById("live");

  const busy = (region) => {
    const chosen = window.getSelection();
    return region.contains(document.activeElement) || (chosen && !chosen.isCollapsed);
  };

  function follow() {
    let last = 0;
    let waiting = 0;
    const refresh = () => {
      waiting = 0;
      const region = live();
      if (!region || document.hidden || busy(region)) { waiting = setTimeout(refresh, REST_MS); return; }
      last = Date.now();
      region.dispatchEvent(new CustomEvent("changed"));
    };
    const source = new EventSource("/page/events");
    source.addEventListener("changed", () => {
      if (!waiting) waiting = setTimeout(refresh, Math.max(0, last + REST_MS - Date.now()));
    });
    window.addEventListener("pagehide", () => source.close());
  }

  function walkTokens() {
    const box = document.getElementById("tokens");
    const about = document.getElementById("token-about");
    if (!box || !about) return;
    const all = box.children;
    let at = -1;
    const choose = (index) => {
      if (index < 0 || index >= all.length) return;
      if (at >= 0) all[at].classList.remove("chosen");
      at = index;
      all[at].classList.add("chosen");
      all[at].scrollIntoView({ block: "nearest" });
      about.textContent = "“" + all[at].textContent + "” – " + all[at].title;
    };
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
    box.addEventListener("keydown", (event) => {
      if (event.key in steps) choose(Math.min(Math.max(at + steps[event.key], 0), all.length - 1));
      else if (event.key === "Home") choose(0);
      else if (event.key === "End") choose(all.length - 1);
      else return;
      event.preventDefault();
    });
    box.addEventListener("click", (event) => {
      const index = Array.prototype.indexOf.call(all, event.target);
      if (index >= 0) choose(index);
    });
  }

  if (live() && "live" in document.body.dataset) follow();
  walkTokens();
})();

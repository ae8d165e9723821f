// What pages do beyond HTML: local times, keys, and a confirm button that waits until the arguments were on screen. All of it is extra.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");

  // Times: the person's own, beside UTC.
  const local = (root) => {
    for (const time of root.querySelectorAll("time:not([data-local])")) {
      time.dataset.local = "";
      const own = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      time.title = `${time.title} — ${own}`;
    }
  };
  local(document);
  document.addEventListener("htmx:afterSettle", (e) => local(e.target));
  document.addEventListener("htmx:sseMessage", () => local(document));

  // How long ago something was, or how far away it is, goes on being true while the page is open. The clock is the console's.
  const ahead = Date.now() - Number(document.documentElement.dataset.now);
  const units = [["s", 1], ["m", 60], ["h", 3600], ["d", 86400]];
  const duration = (s) => {
    const n = s < 60 ? 0 : s < 3600 ? 1 : s < 48 * 3600 ? 2 : 3;
    const [unit, seconds] = units[n], [small, less] = units[Math.max(n - 1, 0)];
    const rest = n > 0 ? Math.floor(s % seconds / less) : 0;
    return Math.floor(s / seconds) + unit + (rest > 0 ? rest + small : "");
  };
  setInterval(() => {
    for (const e of document.querySelectorAll("[data-ago]")) {
      const s = (Date.now() - ahead - Date.parse(e.dataset.ago)) / 1000;
      const text = s < -1 ? `in ${duration(Math.ceil(-s))}` : `${duration(Math.max(s, 0))} ago`;
      if (e.textContent !== text) e.textContent = text;
    }
  }, 5000);

  // What is asked of the console from time to time says whether it answers at all.
  const silent = (is) => document.documentElement.classList.toggle("silent", is);
  document.addEventListener("htmx:sendError", () => silent(true));
  document.addEventListener("htmx:afterRequest", (e) => { if (e.detail.xhr.status > 0) silent(false); });

  // A person who decides has seen all arguments: what approves is enabled when their end was on screen.
  const end = document.getElementById("end-of-arguments");
  const approve = document.getElementById("approve");
  let approving = false; // the person asked to go to the button before it was enabled
  if (end && approve) {
    approve.disabled = true;
    new IntersectionObserver((seen, observer) => {
      if (seen.some((s) => s.isIntersecting)) {
        approve.disabled = false;
        if (approving) approve.focus();
        observer.disconnect();
      }
    }).observe(end);
  }

  // Keys. None of them does anything but move.
  const off = document.getElementById("keys-off");
  const help = document.getElementById("help");
  const stored = { get: () => { try { return localStorage.getItem("keys-off"); } catch { return null; } },
    set: (v) => { try { localStorage.setItem("keys-off", v); } catch { /* private mode */ } } };
  off.checked = stored.get() === "1";
  off.addEventListener("change", () => stored.set(off.checked ? "1" : "0"));
  document.getElementById("help-open").addEventListener("click", () => help.showModal());

  const places = { o: "/", r: "/runs", i: "/inbox", d: "/dead-letters", a: "/agents", h: "/health" };
  let going = false;
  const rows = () => [...document.querySelectorAll("table.list tbody tr")];
  const move = (by) => {
    const all = rows();
    if (all.length === 0) return;
    const at = all.findIndex((r) => r.classList.contains("here"));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    if (at >= 0) all[at].classList.remove("here");
    next.classList.add("here");
    const link = next.querySelector("a");
    if (link) link.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const focus = (id) => document.getElementById(id)?.focus();
  const keys = {
    "/": () => document.querySelector("input[type=search]")?.focus(),
    "?": () => help.showModal(),
    j: () => move(1),
    k: () => move(-1),
    u: () => document.querySelector("[data-up]")?.click(),
    g: () => { going = true; setTimeout(() => { going = false; }, 1500); },
    a: () => {
      if (!approve) return;
      document.activeElement.blur(); // what Enter would press is never another button
      approving = true;
      end.scrollIntoView({ block: "nearest" });
      approve.focus();
    },
    d: () => focus("deny"),
    e: () => focus("edit"),
    r: () => (document.getElementById("reason") ?? document.querySelector(".decide .field :is(input, textarea, select)"))?.focus(),
  };
  document.addEventListener("keydown", (e) => {
    if (off.checked || e.ctrlKey || e.metaKey || e.altKey || help.open) return;
    // Browsers leave the focus in a closed dialog that was opened from nowhere in particular.
    if (e.target.closest("input, textarea, select") && !help.contains(e.target)) return;
    if (going && places[e.key]) {
      location.href = document.documentElement.dataset.base + places[e.key];
    } else if (keys[e.key] && !going) {
      keys[e.key]();
    } else {
      return;
    }
    e.preventDefault();
  });
})();

// Streams of what happens. Over HTTP/1.1 a browser has six connections to a host, for all its tabs: so a tab that nobody sees has no stream,
// at most four have one, and the others wait for theirs. What was missed meanwhile comes with the first events. A console that has no room
// for another stream ends it with them, and says when to ask again.
"use strict";
(() => {
  const most = 4;

  // slot waits for one of the streams that there may be, and resolves with what gives it back.
  const slot = (signal) => new Promise((resolve) => {
    if (!navigator.locks) { // the page came in the clear from another machine
      resolve(() => {});
      return;
    }
    const others = new AbortController();
    signal.addEventListener("abort", () => others.abort());
    let mine = false;
    for (let n = 0; n < most; n++) {
      navigator.locks.request(`agentd-stream-${n}`, { signal: others.signal }, () => {
        if (mine || signal.aborted) return undefined;
        mine = true;
        others.abort();
        return new Promise((free) => { resolve(free); });
      }).catch(() => { /* another slot was free, or none is wanted any more */ });
    }
  });

  // Stream is an EventSource that rests while nobody sees the page.
  class Stream {
    constructor(address) {
      this.address = address;
      this.listeners = [];
      this.readyState = EventSource.CONNECTING;
      this.turn = () => { if (document.hidden) this.rest(); else this.follow(); };
      document.addEventListener("visibilitychange", this.turn);
      this.turn();
    }

    async follow() {
      if (this.resting) return; // it follows, or waits for its turn
      const resting = new AbortController();
      this.resting = resting;
      const late = setTimeout(() => document.documentElement.classList.add("waiting"), 1000);
      resting.signal.addEventListener("abort", () => clearTimeout(late));
      const free = await slot(resting.signal);
      clearTimeout(late);
      document.documentElement.classList.remove("waiting");
      const address = new URL(this.address, location.href);
      if (this.last) address.searchParams.set("after", this.last);
      const source = new EventSource(address);
      resting.signal.addEventListener("abort", () => { source.close(); free(); });
      if (resting.signal.aborted) {
        source.close();
        free();
        return;
      }
      source.onopen = (e) => { this.readyState = EventSource.OPEN; this.onopen?.(e); };
      source.addEventListener("polled", (e) => { this.polls = e.data !== ""; });
      source.onerror = (e) => {
        if (this.polls && source.readyState === EventSource.CONNECTING) return; // it ended as it was said to
        this.readyState = source.readyState;
        if (source.readyState === EventSource.CLOSED) this.close();
        this.onerror?.(e);
      };
      this.source = source;
      for (const [name, listener] of this.listeners) source.addEventListener(name, listener);
      source.addEventListener("line", (e) => { this.last = e.lastEventId || this.last; });
    }

    rest() {
      this.resting?.abort();
      this.resting = this.source = undefined;
    }

    addEventListener(name, listener) {
      this.listeners.push([name, listener]);
      this.source?.addEventListener(name, listener);
    }

    removeEventListener(name, listener) {
      this.listeners = this.listeners.filter(([n, l]) => n !== name || l !== listener);
      this.source?.removeEventListener(name, listener);
    }

    close() {
      document.removeEventListener("visibilitychange", this.turn);
      this.readyState = EventSource.CLOSED;
      this.rest();
    }
  }

  htmx.createEventSource = (address) => new Stream(address);
})();

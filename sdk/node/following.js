// Follow a run. Live events are lossy: the milestones that were missed are asked for.
import { Unavailable } from "./errors.js";
import * as wire from "./wire.js";

const ASK_AGAIN = 1000, BUFFER = 1024, WATCH_EVERY = 5000;
// Begins the types of live events.
const LIVE = /^agentd\.live\./;
// How long workers remember that somebody reads.
const WATCH_LASTS = 15_000;

/** What happens in a run after a mark, as workers tell it to who announces that they read. */
export class Following {
  #waiting = [];
  // Whether something may be between the mark and what is told next.
  #lost = true;
  // Whether all workers know by now that somebody reads.
  #known = false;
  // When that was said last.
  #announced = 0;
  #over = false;
  #ended;
  #at;
  #whole;
  #wake = () => {};

  /** It goes on until the signal is aborted. */
  constructor(nc, root, address, after, signal) {
    Object.assign(this, { nc, stream: `${root}.stream.${address}`, watch: `${root}.watch.${address}`, signal });
    [this.#at, this.#whole] = [after, after.rev === 0];
    const subscription = wire.subscribe(nc, this.stream, (m) => this.#hear(m));
    wire.ended(subscription).then((why) => this.#end(why));
    const asked = wire.subscribe(nc, `${root}.watch.ask`, () => this.#again());
    const renewing = setInterval(() => this.#renew(), WATCH_EVERY), statuses = nc.status();
    this.#announce();
    this.#reconnect(statuses);
    const stop = () => this.#wake();
    signal.addEventListener("abort", stop);
    this.close = () => {
      signal.removeEventListener("abort", stop);
      clearInterval(renewing);
      subscription.unsubscribe();
      asked.unsubscribe();
      statuses.stop?.();
    };
  }

  /** Until the run's end. history yields the milestones after a mark that there are now. Throws the signal's reason. */
  async *events(history) {
    while (!this.#over) {
      this.signal.throwIfAborted();
      if (this.#ended) throw this.#ended;
      for await (const live of this.#lost ? this.#missed(history) : this.#heard()) {
        yield live;
        if (!this.#over) this.signal.throwIfAborted();
      }
    }
  }

  /** The milestones after the mark. A run that was retried goes on after an end. */
  async *#missed(history) {
    this.#lost = false;
    try {
      for await (const live of history(this.#at)) yield this.#tell(live);
    } catch (error) {
      if (!(error instanceof Unavailable) && error.code !== "internal") throw error; // what workers need may be away, too
      this.#lost = true;
      await this.#news();
    }
  }

  async *#heard() {
    if (this.#waiting.length === 0) await this.#news();
    for (let m; !this.#lost && !this.#over && (m = this.#waiting.shift()); ) {
      const live = liveIn(m), at = this.#at;
      if (!live) continue;
      if (live.ephemeral) yield live;
      else if (live.rev < at.rev || (live.rev === at.rev && live.i <= at.i)) continue;
      else if ((live.rev === at.rev && live.i === at.i + 1) || (this.#whole && live.rev === at.rev + 1 && live.i === 0)) yield this.#tell(live);
      else this.#lost = true; // something is between the two, or may be
    }
  }

  #tell(live) {
    [this.#at, this.#whole] = [{ rev: live.rev, i: live.i }, live.i + 1 === live.event.count];
    this.#over = live.type === "run.finished";
    return live;
  }

  /** Waits until something is heard, or it is time to ask again. */
  async #news() {
    if (this.#ended || this.signal.aborted) return;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, ASK_AGAIN);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #hear(message) {
    // Whoever may make a consumer may have other messages delivered here: they keep the subject that they came on.
    if (message.subject !== this.stream) return;
    if (this.#waiting.push(message) > BUFFER) this.#lost = this.#waiting.splice(0).length > 0;
    this.#wake();
  }

  #end(why) {
    this.#ended = why;
    this.#wake();
  }

  #announce() {
    this.#announced = Date.now();
    if (!this.nc.isClosed() && !this.nc.isDraining()) this.nc.publish(this.watch);
  }

  /** Workers have forgotten, or do not know, that somebody reads. What was told before all of them knew was missed. */
  #again() {
    [this.#lost, this.#known] = [true, false];
    this.#announce();
    this.#wake();
  }

  /** Where the process stood still, workers have forgotten meanwhile that somebody reads. */
  #renew() {
    const forgotten = Date.now() - this.#announced > WATCH_LASTS;
    [this.#lost, this.#known] = [this.#lost || forgotten || !this.#known, true];
    this.#announce();
  }

  async #reconnect(statuses) {
    for await (const { type } of statuses) if (type === "reconnect") this.#again();
  }
}

/** What a promise comes to, unless the signal is aborted before. Throws the signal's reason then. */
export async function unlessAborted(signal, promise) {
  let abort;
  const aborted = new Promise((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([aborted, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** The live event in a message; null of what is none: the server itself answers a request on whatever reply subject that names. */
function liveIn(message) {
  try {
    const event = message.json();
    return LIVE.test(event?.type) ? told(event) : null;
  } catch {
    return null;
  }
}

/** An event that workers tell, as who follows a run sees it. */
export function told(event) {
  const { type, data = {}, rev = 0, i = 0, ephemeral = false } = event;
  return { type: type.replace(LIVE, ""), data, rev, i, ephemeral, event };
}

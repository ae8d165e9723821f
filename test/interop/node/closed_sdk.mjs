// Serves weather.forecast with sdk/node until its connection is closed while a call is in hand, whose delivery is to be extended then. Prints
// how that ends, and what is said of it, as JSON lines.
import { Service, connect } from "agentd";

const beats = [], { setInterval } = globalThis;
globalThis.setInterval = (beat, every) => {
  beats.push(beat);
  return setInterval(beat, every);
};

const contract = { uri: "#/weather/forecast", type: "weather.forecast", versions: { "1.0.0": { accepts: {}, emits: { "weather.forecast.done": {} } } } };
const say = (...what) => console.log(JSON.stringify(what));
const log = { info() {}, warn: (text) => say("warned", text.replace(/c1-0-\w+/, "CALL")), error: console.error };
const nc = await connect();
const service = new Service(contract, { log }).handle(async () => {
  await nc.close();
  for (const beat of beats) setImmediate(beat); // as after 5 s
  await new Promise(setImmediate);
  return { text: "sunny" };
});
await service.serve(nc, new AbortController().signal).catch(({ code, retryable }) => say("ended", code, retryable));

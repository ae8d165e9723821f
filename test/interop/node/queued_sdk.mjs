// Serves weather.forecast with sdk/node, one call after the other: that for Bern until somebody says so on the subject "continue".
import { Service, connect } from "agentd";

const nc = await connect();
const continued = new Promise((resolve) => nc.subscribe("continue", { callback: resolve }));
const ending = new AbortController();
process.once("SIGTERM", () => ending.abort());
await new Service(process.argv[2], { slots: 1 }).handle(async (call, { city }) => {
  console.log("CALLED", city);
  if (city === "Bern") await continued;
  return { text: `sunny in ${city}` };
}).serve(nc, ending.signal);
await nc.close();

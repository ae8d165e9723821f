// Serves weather.forecast with sdk/node, with answers that cannot be sent. It prints each city that a handler is called with.
import { setTimeout as sleep } from "node:timers/promises";

import { Service, ToolError, Unavailable } from "agentd";

await new Service(process.argv[2], { hearVoids: false }).handle(async (call, { city }) => {
  console.log("CALLED", city);
  await sleep(500); // all are in hand
  switch (city) {
    case "Large": return { text: "x".repeat(2 << 20) };
    case "LargeError": throw new ToolError("x".repeat(2 << 20));
    case "Strange": return { text: "sunny", degrees: 10n };
    case "Cycle": {
      const cycle = { text: "sunny" };
      cycle.in = cycle;
      return cycle;
    }
    case "Surrogate": return { text: "\ud800" };
    case "Wide": return { text: "sunny", rows: Array.from({ length: 10_064 }, (_, degrees) => ({ degrees })) };
    case "NaN": return { text: "sunny", degrees: NaN };
    case "Text": return "sunny";
    case "List": return [1, 2];
    case "Nothing": return undefined;
    case "Map": return new Map([["text", "sunny"]]);
    case "Unavailable": throw new Unavailable("no answer from nats://ann@10.0.0.7"); // it is not for the model to read
    case "Deep": {
      let deep = { text: "sunny" };
      for (let i = 0; i < 64; i++) deep = { text: "sunny", in: deep };
      return deep;
    }
  }
  return { text: `sunny in ${city}` };
}).run();

// A service as users of arvo-event-handler 2.2.13 write them. Nothing in it knows of agentd, or of NATS.
import { createArvoContract } from "arvo-core";
import { createArvoEventHandler } from "arvo-event-handler";
import { z } from "zod";

const contract = createArvoContract({
  uri: "#/weather/forecast",
  type: "com.weather.forecast",
  versions: {
    "1.0.0": {
      accepts: z.object({ city: z.string().min(1), days: z.number().int().default(1) }),
      emits: { "evt.weather.forecast.success": z.object({ text: z.string(), days: z.number().optional() }) },
    },
  },
});

const success = "evt.weather.forecast.success";

export default createArvoEventHandler({
  contract,
  executionunits: 0.25,
  handler: {
    "1.0.0": async ({ event }) => {
      const { city, days } = event.data;
      if (city === "Atlantis") throw new Error("the weather is unknown in Atlantis");
      if (city === "Babel") throw "a string";
      if (city === "Carcosa") return { type: success, data: { text: 7 } }; // does not fit the contract
      if (city === "Dis") return undefined;
      if (city === "Eldorado") return [1, 2].map((n) => ({ type: success, data: { text: `forecast ${n}` } }));
      return { type: success, data: { text: `sunny in ${city}`, days }, executionunits: 0.5 };
    },
  },
});

// Serves weather.forecast with sdk/node, without promises and for what it costs.
import { Service } from "agentd";

await new Service(process.argv[2], { hearVoids: false, units: 1 }).handle((call, { city }) => ({ text: `sunny in ${city}`, $units: 0.25 })).run();

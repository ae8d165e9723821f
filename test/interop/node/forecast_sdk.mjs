// Serves weather.forecast with sdk/node.
import { Service, ToolError } from "agentd";

await new Service(process.argv[2], { hearVoids: false }).handle(async (call, data) => {
  if (data.city === "Atlantis") throw new ToolError("the weather is unknown in Atlantis");
  if (data.city === "Limbo") await new Promise(() => {});
  if (data.city === "Babel") return { text: "rain ".repeat(1 << 19) };
  return { text: `sunny in ${data.city}` };
}).run();

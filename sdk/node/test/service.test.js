// What a service makes of its contract, its calls and its answers, without a broker.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Service } from "../service.js";

const type = "weather.forecast", uri = "#/weather/forecast";
const contract = (versions) => ({ uri, type, versions: Object.fromEntries(Object.entries(versions).map(
  ([version, schema]) => [version, { accepts: {}, emits: { "weather.forecast.done": schema } }])) });
const versions = { "1.0.0": {}, "1.10.0": {}, "1.9.0": {}, "2.0.0-rc.1": {} };
const silent = { info() {}, warn() {}, error() {} };
const waited = new AbortController().signal;

/** What a service answers to a call. */
const answer = (given, event, handler) => new Service(given, { log: silent }).handle(handler).answer({ event: { type, ...event }, data: {} }, waited);

test("a service that could not answer is refused at the start", async () => {
  const good = contract(versions);
  for (const [what, service] of [
    ["weather.forecast 1.0.0", new Service(good).handle("1.10.0", async () => ({}))],
    ["weather.forecast 1.9.0", new Service(good).handle("1.9.0", async () => ({})).handle(async () => ({})).handle("1.9.0", async () => ({}))],
    ["weather.forecast 1.10.0", new Service(good).handle("1.0.0", async () => ({})).handle(async () => ({})).handle(async () => ({}))],
    ["weather.forecast 1.0.0", new Service(contract({ "1.0.0": {} })).handle("1.0.0", "sunny")],
    ["units", new Service(good, { units: -1 }).handle(async () => ({}))],
    ["units", new Service(good, { units: NaN }).handle(async () => ({}))],
    ["slots", new Service(good, { slots: 0 }).handle(async () => ({}))],
    ["slots", new Service(good, { slots: 1.5 }).handle(async () => ({}))],
    ["$.uri", new Service({ ...good, uri: "" }).handle(async () => ({}))],
    ["$.type", new Service({ ...good, type: "a b" }).handle(async () => ({}))],
    ["$.versions", new Service({ uri, type }).handle(async () => ({}))],
    ['$.versions["v1"]', new Service(contract({ v1: {} })).handle(async () => ({}))],
    ['$.versions["0.0.0"]', new Service(contract({ "0.0.0": {} })).handle(async () => ({}))],
    ['$.versions["1.0.0"].emits', new Service({ uri, type, versions: { "1.0.0": { accepts: {}, emits: {} } } }).handle(async () => ({}))],
    ['$.versions["1.0.0"]', new Service({ uri, type, versions: { "1.0.0": { emits: { done: {} } } } }).handle(async () => ({}))],
    ['$.versions["1.0.0"].emits["weather.forecast.done"]', new Service(contract({ "1.0.0": { type: "strin" } })).handle(async () => ({}))],
  ]) {
    await assert.rejects(service.serve(null, waited), (e) => e.code === "config" && e.faults[0].path === what && e.message.includes(what), what);
  }
  assert.throws(() => new Service(good, { root: "Acme" }), { code: "config" });
});

test("a call means the version that it names, or the newest", async () => {
  const version = async (dataschema, given = contract(versions)) => {
    let called;
    const { dataschema: answered } = await answer(given, { dataschema }, async (call) => {
      called = call.version;
      return {};
    });
    assert.equal(answered, `${uri}/${called}`);
    return called;
  };
  assert.equal(await version("#/weather/forecast/1.9.0"), "1.9.0");
  assert.equal(await version("agentd:/weather/forecast/1.9.0"), "1.9.0");
  for (const none of [undefined, null, ""]) assert.equal(await version(none), "1.10.0");
  assert.equal(await version("", contract({ "2.0.0-rc.2": {}, "2.0.0-rc.10": {}, "2.0.0-rc": {}, "2.0.0-1": {} })), "2.0.0-rc.10");
  assert.equal(await version("", contract({ "2.0.0-rc": {}, "2.0.0-rc.1": {} })), "2.0.0-rc.1");
  for (const [event, code] of [
    [{ dataschema: "#/weather/forecast/3.0.0" }, "contract_missing"], [{ dataschema: "#/weather/other/1.0.0" }, "contract_missing"],
    [{ dataschema: "#/weather/forecast" }, "invalid_event"], [{ dataschema: "1.0.0" }, "invalid_event"], [{ type: "weather.other" }, "invalid_event"],
  ]) {
    await assert.rejects(answer(contract(versions), event, async () => ({})), { code, name: "CallError" });
  }
});

test("an answer is an object, and all of it", async () => {
  const given = contract({ "1.0.0": {} });
  const { data, type: answered } = await answer(given, {}, async () => ({ toJSON: () => ({ euros: "0.05", $type: "weather.forecast.done" }) }));
  assert.deepEqual([data, answered], [{ euros: "0.05" }, "weather.forecast.done"]);
  for (const value of ["sunny", [1, 2], undefined, 7, null, new Map([["text", "sunny"]]), { price: NaN }, { inf: Infinity }]) {
    await assert.rejects(answer(given, {}, async () => value), { name: "TypeError", message: /Return an object/ });
  }
});

test("where there are several types, an answer says which one it is", async () => {
  const emits = { "weather.forecast.done": {}, "weather.forecast.none": {} }, given = { uri, type, versions: { "1.0.0": { accepts: {}, emits } } };
  assert.deepEqual(await answer(given, {}, () => ({ $type: "weather.forecast.none", text: "" })), {
    type: "weather.forecast.none", dataschema: `${uri}/1.0.0`, data: { text: "" }, executionunits: 0,
  });
  for (const value of [{ text: "sunny" }, { $type: "weather.other" }, { $type: null }]) {
    await assert.rejects(answer(given, {}, async () => value), { name: "TypeError", message: /want weather.forecast.done or weather.forecast.none/ });
  }
});

test("what an answer cost", async () => {
  const costs = async (units, $units) => {
    const service = new Service(contract({ "1.0.0": {} }), { units, log: silent }).handle(() => ({ $units, text: "sunny" }));
    const { executionunits, data } = await service.answer({ event: { type }, data: {} }, waited);
    assert.deepEqual(data, { text: "sunny" });
    return executionunits;
  };
  assert.deepEqual([await costs(), await costs(2), await costs(2, 0.25), await costs(2, 0)], [0, 2, 0.25, 2]);
  for (const units of ["1", -1, 1e13]) await assert.rejects(costs(2, units), { name: "TypeError", message: /want a number of 0 or more/ });
});

const dialects = {
  "http://json-schema.org/draft-04/schema#": undefined, // no package that reads it is installed here
  "http://json-schema.org/draft-06/schema#": { items: [{ type: "string" }, { type: "number" }] },
  "http://json-schema.org/draft-07/schema#": { items: [{ type: "string" }, { type: "number" }] },
  "https://json-schema.org/draft-07/schema": { items: [{ type: "string" }, { type: "number" }] },
  "https://json-schema.org/draft/2019-09/schema": { items: [{ type: "string" }, { type: "number" }] },
  "https://json-schema.org/draft/2020-12/schema": { prefixItems: [{ type: "string" }, { type: "number" }] },
  "https://example.com/mine": undefined,
};

for (const [$schema, pair] of Object.entries(dialects)) {
  test(`answers are checked in the dialect ${$schema}`, async () => {
    const warned = [];
    const schema = { $schema, type: "object", properties: { pair: { type: "array", ...pair } } };
    const service = new Service(contract({ "1.0.0": schema, "1.1.0": schema }), { log: { ...silent, warn: (text) => warned.push(text) } });
    service.handle(async (call, data) => data);
    const given = (data) => service.answer({ event: { type }, data }, waited);
    assert.deepEqual((await given({ pair: ["a", 1] })).data, { pair: ["a", 1] });
    assert.equal(warned.length, pair ? 0 : 1);
    if (pair) await assert.rejects(given({ pair: [1, "a"] }), { name: "TypeError", message: /does not fit/ });
    else await given({ pair: "none" });
  });
}

test("multiples of fractions are those of their decimals", async () => {
  const schema = { type: "object", properties: { price: { multipleOf: 0.01 }, tiny: { multipleOf: 1e-7 }, hours: { multipleOf: 0.25 } } };
  const service = new Service(contract({ "1.0.0": schema, "1.1.0": { ...schema, $schema: "http://json-schema.org/draft-07/schema#" } }), { log: silent });
  service.handle(async (call, data) => data);
  for (const version of ["1.0.0", "1.1.0"]) {
    const given = (data) => service.answer({ event: { type, dataschema: `${uri}/${version}` }, data }, waited);
    for (const data of [{ price: 0.07 }, { price: 1.15 }, { price: -19.99 }, { price: 0 }, { price: 1e21 }, { tiny: 3e-7 }, { tiny: 1e300 }, { hours: 1.75 }]) {
      assert.deepEqual((await given(data)).data, data);
    }
    for (const data of [{ price: 0.075 }, { price: 1e-9 }, { tiny: 1.5e-7 }, { hours: 1.7 }]) {
      await assert.rejects(given(data), { name: "TypeError", message: /"path":"\$\.(price|tiny|hours)","expected":"must be multiple of / }, JSON.stringify(data));
    }
  }
});

test("a schema that only agentd can read is not checked here", async () => {
  const warned = [];
  const schema = { properties: { text: { pattern: "(?i)sunny" } } };
  const service = new Service(contract({ "1.0.0": schema }), { log: { ...silent, warn: (text) => warned.push(text) } }).handle(async () => ({ text: "Sunny" }));
  assert.deepEqual((await service.answer({ event: { type }, data: {} }, waited)).data, { text: "Sunny" });
  assert.equal(warned.length, 1);
});

test("a call that is voided while the checks are made ready is not begun", async () => {
  let begun = 0;
  const service = new Service(contract({ "1.0.0": {} }), { log: silent }).handle(() => { begun += 1; return {}; });
  const voided = new AbortController(), answered = service.answer({ event: { type }, data: {} }, voided.signal);
  voided.abort(new Error("voided"));
  await assert.rejects(answered, /voided/);
  assert.equal(begun, 0);
});

// What a contract says: its versions, and what its schemas make of data.
import { CallError } from "./errors.js";
import * as wire from "./wire.js";

const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*))?(?:\+[\dA-Za-z-]+(?:\.[\dA-Za-z-]+)*)?$/;
// The version in the dataschema of a system error.
export const WILDCARD = "0.0.0";
// The dialects of JSON Schema, and the modules that read them. Draft 7 reads what draft 6 has.
const MODULES = {
  "http://json-schema.org/draft-04/schema": "ajv-draft-04", "http://json-schema.org/draft-06/schema": "ajv",
  "http://json-schema.org/draft-07/schema": "ajv", "http://json-schema.org/draft/2019-09/schema": "ajv/dist/2019.js",
  "http://json-schema.org/draft/2020-12/schema": "ajv/dist/2020.js",
};
const OPTIONS = { allErrors: true, strict: false, validateFormats: false, logger: false };
const DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema";

/** What keeps a contract from being served. */
export function contractFaults({ uri, type, versions = {} }) {
  const faults = [];
  const fault = (path, expected, got) => faults.push({ path, expected, got: String(got) });
  if (!uri) fault("$.uri", "a URI", "nothing");
  if (!isName(type)) fault("$.type", "a name", JSON.stringify(type));
  if (Object.keys(versions).length === 0) fault("$.versions", "at least one", "none");
  for (const [version, { accepts, emits = {} }] of Object.entries(versions)) {
    const path = `$.versions["${version}"]`, types = Object.keys(emits);
    if (!VERSION.test(version) || version === WILDCARD) fault(path, `a semantic version above ${WILDCARD}`, version);
    if (types.length === 0) fault(`${path}.emits`, "at least one answer", "none");
    for (const schema of [accepts, ...Object.values(emits)]) {
      if (typeof schema !== "object" || schema === null) fault(path, "schemas that are objects", JSON.stringify(schema) ?? "none");
    }
    for (const emitted of types.filter((t) => !isName(t) || t === `sys.${type}.error`)) {
      fault(`${path}.emits`, "names of answers other than the system error", emitted);
    }
  }
  return faults;
}

function isName(text) {
  try {
    return wire.token(text) !== "";
  } catch {
    return false;
  }
}

/** The version of the contract that a call names; the newest, if it names none. Throws CallError. */
export function versionCalled({ uri, type, versions }, event) {
  if (event.type !== type) throw new CallError("invalid_event", `this service answers ${type} and was called with ${event.type}`);
  const schema = String(event.dataschema ?? "");
  if (!schema) return newest(Object.keys(versions));
  const at = schema.lastIndexOf("/"), called = schema.slice(0, at), version = schema.slice(at + 1);
  if (at <= 0 || !VERSION.test(version)) throw new CallError("invalid_event", `dataschema "${schema}" is not of the form <uri>/<version>`);
  if (absolute(called) !== absolute(uri)) throw new CallError("contract_missing", `this service serves ${uri}, not ${called}`);
  if (!Object.hasOwn(versions, version)) {
    throw new CallError("contract_missing", `contract ${uri} has no version ${version}; it has ${Object.keys(versions).join(", ")}`);
  }
  return version;
}

/** The absolute form of a contract's URI: "#/a/b" is short for "agentd:/a/b". */
const absolute = (uri) => uri.replace(/^#\//, "agentd:/");

/** The highest version; a pre-release only where there is nothing else. */
function newest(versions) {
  const released = versions.filter((version) => !VERSION.exec(version)[4]);
  return (released.length > 0 ? released : versions).reduce((best, version) => (precedence(version, best) > 0 ? version : best));
}

/** More than 0 where the first of two versions is the higher one. */
function precedence(a, b) {
  const [left, right] = [a, b].map((version) => VERSION.exec(version));
  for (const i of [1, 2, 3]) {
    if (left[i] !== right[i]) return Number(left[i]) - Number(right[i]);
  }
  const [mine, others] = [left, right].map(([, , , , before = ""]) => before.split("."));
  for (let i = 0; i < Math.min(mine.length, others.length); i++) {
    if (mine[i] !== others[i]) return identifiers(mine[i], others[i]);
  }
  return mine.length - others.length;
}

/** The order of two parts of pre-releases: numbers come before names. */
function identifiers(a, b) {
  const [left, right] = [a, b].map((part) => (/^\d+$/.test(part) ? Number(part) : Infinity));
  return left === right ? (a > b ? 1 : -1) : left - right;
}

/** The checks of a contract's schemas, where the package ajv is there: agentd makes them in any case. */
export class Checks {
  #checks = new Map();
  #dialects = new Map();
  /** What is wrong with the schemas. */
  faults = [];
  /** Why some are not checked here, each with the schemas that it is said of. */
  unchecked = new Map();

  static async of({ versions }) {
    const checks = new Checks();
    for (const [version, { accepts, emits }] of Object.entries(versions)) {
      await checks.#add(`$.versions["${version}"].accepts`, accepts);
      for (const type of Object.keys(emits)) await checks.#add(`$.versions["${version}"].emits["${type}"]`, emits[type]);
    }
    return checks;
  }

  accepts(version, data) {
    return this.#violations(`$.versions["${version}"].accepts`, data);
  }

  emits(version, type, data) {
    return this.#violations(`$.versions["${version}"].emits["${type}"]`, data);
  }

  #violations(path, data) {
    const check = this.#checks.get(path);
    if (!check || check(data)) return [];
    return check.errors.map((e) => ({ path: "$" + e.instancePath.replaceAll("/", "."), expected: e.message, got: e.keyword }));
  }

  async #add(path, schema) {
    const { $schema = DEFAULT_DIALECT, ...rest } = schema;
    const name = MODULES[String($schema).replace(/^https:/, "http:").replace(/#$/, "")];
    if (!name) {
      this.#skip(path, `${JSON.stringify($schema)} is no dialect of JSON Schema that is known here`);
      return;
    }
    if (!(await module("ajv"))) return;
    const Ajv = await module(name);
    if (!Ajv) {
      this.#skip(path, `the package ${name}, which reads ${$schema}, is not installed`);
      return;
    }
    const dialect = this.#dialect(name, Ajv);
    if (!dialect.validateSchema(rest)) {
      this.faults.push({ path, expected: `a schema of ${$schema}`, got: `one in which ${dialect.errorsText(dialect.errors, { dataVar: "$" })}` });
      return;
    }
    try {
      this.#checks.set(path, exactly(new Ajv({ ...OPTIONS, validateSchema: false })).compile(rest));
    } catch (error) {
      this.#skip(path, `ajv cannot use it: ${error.message}`);
    }
  }

  /** What judges the schemas of a dialect. It knows none of them: two may have one id. */
  #dialect(name, Ajv) {
    if (!this.#dialects.has(name)) this.#dialects.set(name, new Ajv(OPTIONS));
    return this.#dialects.get(name);
  }

  #skip(path, why) {
    this.unchecked.set(why, [...(this.unchecked.get(why) ?? []), path]);
  }
}

/** Has multiples of fractions looked for in decimal, as agentd does: ajv divides floats, in which 0.07 is no multiple of 0.01. */
function exactly(ajv) {
  const compile = (of) => function check(value) {
    if (isMultiple(value, of)) return true;
    check.errors = [{ keyword: "multipleOf", message: `must be multiple of ${of}`, params: { multipleOf: of } }];
    return false;
  };
  return ajv.removeKeyword("multipleOf").addKeyword({ keyword: "multipleOf", type: "number", schemaType: "number", compile });
}

/** Whether a number, as JSON writes it, is a multiple of another. */
function isMultiple(value, of) {
  const [a, b] = [decimal(value), decimal(of)], least = Math.min(a.exponent, b.exponent);
  return whole(a, least) % whole(b, least) === 0n;
}

/** A number as digits and an exponent of ten. */
function decimal(value) {
  const [, digits, fraction = "", exponent = "0"] = /^(-?\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value));
  return { digits: BigInt(digits + fraction), exponent: Number(exponent) - fraction.length };
}

const whole = ({ digits, exponent }, least) => digits * 10n ** BigInt(exponent - least);

/** What a package exports; undefined where it is not installed. */
async function module(name) {
  try {
    return (await import(name)).default;
  } catch (error) {
    if (error.code === "ERR_MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}

import { connect as transport } from "@nats-io/transport-node";

import { AgentdError } from "./errors.js";
import * as wire from "./wire.js";

const ADDRESS = /^(\[[\da-f:.%]+\]|[\da-f]*:[\da-f:.]+|[\w.-]+)(:\d+)?$/i;

/**
 * Connects to NATS with the options of @nats-io/transport-node: by default to NATS_URL, as NATS_USER with NATS_PASSWORD or else with the
 * login in the URL, with the authorities in NATS_CA and the certificate in NATS_CERT and NATS_KEY, and the inbox prefix that `agentd
 * nats-config` gives to a user with the root, which is that of a Client. Where there are such, or a URL begins with tls://, it connects by TLS
 * alone. It reconnects for ever, also where a server refuses the login meanwhile.
 */
export async function connect({ root = "", ...options } = {}) {
  const { NATS_URL, NATS_CA, NATS_CERT, NATS_KEY } = process.env;
  const given = [options.servers ?? (NATS_URL || "nats://127.0.0.1:4222")].flat().flatMap((list) => list.split(",")).map(parted);
  const login = loginOf(options, given.find(({ login }) => login)?.login);
  const files = { caFile: NATS_CA || undefined, certFile: NATS_CERT || undefined, keyFile: NATS_KEY || undefined };
  // The transport looks at no scheme, and would log in without TLS where a server, or somebody before it, offers none.
  const demanded = NATS_CA || NATS_CERT || given.some(({ server }) => /^tls:/i.test(server));
  return transport({
    inboxPrefix: login.user ? `_INBOX_${wire.root(root)}_${login.user}` : "_INBOX", name: "agentd-node", maxReconnectAttempts: -1,
    ignoreAuthErrorAbort: true, ...login, ...options,
    tls: options.tls ?? (demanded ? files : undefined), servers: given.map(({ server }) => server),
  });
}

/** The user with a password, or the token, to log in with, unless the options have an authenticator. A URL without a password has a token. */
function loginOf({ user, pass, token, authenticator }, inURL) {
  const { NATS_USER, NATS_PASSWORD } = process.env;
  if (user || NATS_USER) return { user: user || NATS_USER, pass: pass ?? (NATS_PASSWORD || undefined) };
  if (token || authenticator) return {};
  const [name, password] = inURL?.split(/:(.*)/s).map(decoded) ?? [];
  return password === undefined ? { token: name } : { user: name, pass: password };
}

/** A server's URL as its login, which is said nowhere, and what is left. Of a URL that is none, something of a login might be left. */
function parted(url) {
  const [, scheme = "", login, address] = /^\s*([a-z]+:\/\/)?(?:(.*)@)?(.*?)\/*\s*$/is.exec(url);
  if (!ADDRESS.test(address)) {
    throw new AgentdError("config", "a server in the URL of NATS is not of the form HOST:PORT: in a login, percent-encode what is no letter or digit");
  }
  return { server: scheme + address, login };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new AgentdError("config", "the login in the URL of NATS is not percent-encoded: write % as %25");
  }
}

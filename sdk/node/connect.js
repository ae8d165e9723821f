import { connect as transport } from "@nats-io/transport-node";

/**
 * Connects to NATS with the options of @nats-io/transport-node: by default to NATS_URL, as NATS_USER with NATS_PASSWORD, with
 * the authorities in NATS_CA and the certificate in NATS_CERT and NATS_KEY, and the inbox prefix of `agentd nats-config`. It
 * reconnects for ever.
 */
export function connect(options = {}) {
  const { NATS_URL, NATS_USER, NATS_PASSWORD, NATS_CA, NATS_CERT, NATS_KEY } = process.env;
  const user = options.user ?? (NATS_USER || undefined);
  const tls = NATS_CA || NATS_CERT ? { caFile: NATS_CA || undefined, certFile: NATS_CERT || undefined, keyFile: NATS_KEY || undefined } : undefined;
  return transport({
    servers: (NATS_URL || "nats://127.0.0.1:4222").split(","), user, pass: NATS_PASSWORD || undefined, tls,
    inboxPrefix: user ? `_INBOX_agentd_${user}` : "_INBOX", name: "agentd-node", maxReconnectAttempts: -1, ...options,
  });
}

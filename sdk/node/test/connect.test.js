// How a connection logs in.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";

import { connect } from "../connect.js";

/** What a connection tells a server of itself, for each of the environments. */
async function told(environment, options = {}) {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.write('INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true,"headers":true}\r\n');
    socket.on("data", (data) => {
      if (String(data).startsWith("CONNECT ")) server.emit("told", JSON.parse(String(data).slice(8).split("\r\n")[0]));
      socket.write("PONG\r\n");
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const heard = once(server, "told"), address = `127.0.0.1:${server.address().port}`;
  Object.assign(process.env, { NATS_USER: "", NATS_PASSWORD: "", ...environment, NATS_URL: environment.NATS_URL.replaceAll("HOST", address) });
  const nc = await connect(options).finally(() => server.close());
  const [{ user, pass, auth_token }] = await heard, { inboxPrefix } = nc.options;
  await nc.close();
  return { user, pass, auth_token, inboxPrefix, at: nc.getServer() === address };
}

test("the login in a URL is that of the connection", async () => {
  const as = (login, user) => ({ user: undefined, pass: undefined, auth_token: undefined, inboxPrefix: user ? `_INBOX_agentd_${user}` : "_INBOX", at: true, ...login });
  assert.deepEqual(await told({ NATS_URL: "nats://ann:p%40w%3A1@HOST" }), as({ user: "ann", pass: "p@w:1" }, "ann"));
  assert.deepEqual(await told({ NATS_URL: "nats://HOST,nats://ann:pw@HOST" }), as({ user: "ann", pass: "pw" }, "ann"));
  assert.deepEqual(await told({ NATS_URL: "nats://s3cret@HOST" }), as({ auth_token: "s3cret" }));
  assert.deepEqual(await told({ NATS_URL: "HOST" }), as({}));
  assert.deepEqual(await told({ NATS_URL: "nats://HOST/ , nats://[::1]:4222,::1,nats.example.com:4222" }, { noRandomize: true }), as({}));
  assert.deepEqual(await told({ NATS_URL: "nats://ann:pw@HOST", NATS_USER: "bob", NATS_PASSWORD: "qw" }), as({ user: "bob", pass: "qw" }, "bob"));
  assert.deepEqual(await told({ NATS_URL: "nats://ann:pw@HOST" }, { user: "eve", pass: "rw" }), as({ user: "eve", pass: "rw" }, "eve"));
  assert.equal((await told({ NATS_URL: "nats://ann:pw@HOST" }, { root: "acme" })).inboxPrefix, "_INBOX_acme_ann");
});

test("where a URL says tls, nobody logs in without it", async () => {
  const mute = { reconnect: false, noRandomize: true };
  for (const url of ["tls://ann:pw@HOST", "TLS://ann:pw@HOST", "nats://ann:pw@HOST,tls://HOST"]) {
    await assert.rejects(told({ NATS_URL: url }, mute), { message: "server does not support 'tls'" }, url);
    await assert.rejects(told({ NATS_URL: url }, { ...mute, tls: undefined }), { message: "server does not support 'tls'" }, url);
  }
});

test("a login that is refused for a while is tried again", async () => {
  const answers = ["PONG", "-ERR 'Authorization Violation'", "-ERR 'Authorization Violation'", "-ERR 'Authorization Violation'", "PONG"], sockets = [];
  const server = createServer((socket) => {
    const answer = answers.shift();
    sockets.push(socket);
    socket.on("error", () => {});
    socket.write('INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true,"headers":true}\r\n');
    socket.on("data", () => (answer === "PONG" ? socket.write("PONG\r\n") : socket.end(`${answer}\r\n`)));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const nc = await connect({ servers: `127.0.0.1:${server.address().port}`, user: "ann", pass: "pw", reconnectDelayHandler: () => 1 });
  const again = (async () => {
    for await (const { type } of nc.status()) if (type === "reconnect") return type;
  })();
  sockets[0].destroy();
  assert.equal(await Promise.race([again, nc.closed().then(() => "closed")]), "reconnect");
  await nc.close();
  server.close();
});

test("no error tells the login in a URL", async () => {
  for (const [url, code] of [
    ["nats://ann:s3cret%@127.0.0.1:4222", "config"], ["nats://ann:s3cret@127.0.0.1:1", undefined], ["nats://ann:s3cret@[", "config"],
    ["nats://ann:s3cret,!@127.0.0.1:4222", "config"], ["nats://ann:s3cret/@127.0.0.1:1", undefined], ["nats://ann:s3cret", "config"],
    ["nats://ann:s3cret?x#y@127.0.0.1:1", undefined], ["nats://ann:s3cret@@127.0.0.1:1", undefined], ["nats://ann:s3cret\n@127.0.0.1:1", undefined],
    ["nats://ann:s3cret@127.0.0.1:99999", undefined], ["nats://ann:s3cret?x", "config"], ["tls://ann:s3cret#", "config"],
  ]) {
    process.env.NATS_URL = url;
    await assert.rejects(connect({ maxReconnectAttempts: 0, reconnect: false }), (error) => {
      const whole = JSON.stringify([error, error.message, error.stack, error.input, error.cause?.message]);
      return !whole.includes("s3cret") && (!code || error.code === code);
    }, url);
  }
});

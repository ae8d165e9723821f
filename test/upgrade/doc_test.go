// Package upgrade has a worker of an older version and one of this checkout serve the same streams and stores in turns and side
// by side, while runs wait for services and for people: `make upgrade`.
//
// Nothing may be lost or done twice, no worker may stumble again and again over what the other one wrote, and the audit of this
// version must find nothing wrong with what both wrote.
package upgrade

// base is the commit that the older worker is built from: the oldest whose runs and messages this version must get along with.
// After a release it is the release's. Workers of earlier commits refuse answers that name an absolute URI of agentd's own
// contracts (docs/adr/0014), and were never released.
const base = "2a2a57ef716756ca5fc08d6b696813b97ff89bbc"

package interop

import (
	"encoding/json"
	"testing"

	"agentd/sdk"
)

// arvoContract is the contract of node/forecast.mjs, as far as agentd is to hold the service and the model to it. It is
// laxer with cities than the service and stricter with days.
func arvoContract(*testing.T) sdk.Contract {
	return sdk.Contract{
		URI: "#/weather/forecast", Type: "com.weather.forecast",
		Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object","required":["city"],"properties":{
				"city":{"type":"string"},"days":{"type":"integer","default":1}}}`),
			Emits: map[string]json.RawMessage{"evt.weather.forecast.success": json.RawMessage(`{"type":"object","required":["text"],
				"properties":{"text":{"type":"string"},"days":{"type":"integer","maximum":7}}}`)},
		}},
	}
}

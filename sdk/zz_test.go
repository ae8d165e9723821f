package sdk

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

func TestZZ(t *testing.T) {
	e := Event{ID: "i", Source: "s", Type: "a.b.c", Data: json.RawMessage(`{ "a" : 1.50, "b<":"\u0041" }`), ExecutionUnits: 2_000_000, Time: time.Unix(1, 0), Extensions: map[string]any{"x": true, "y": json.Number("3"), "z": nil, "w": "t"}}
	b, err := e.Encode()
	fmt.Println(string(b), err)
	var ce event.Event
	fmt.Println(ce.UnmarshalJSON(b))
	fmt.Printf("%#v %s\n", ce.Extensions(), ce.Data())
	out, err := ce.MarshalJSON()
	fmt.Println(string(out), err)
	for _, u := range []Units{500_000, 3_000_000_000_000_000} {
		e.ExecutionUnits = u
		b, _ = e.Encode()
		var ce event.Event
		fmt.Println(ce.UnmarshalJSON(b))
		fmt.Printf("%#v\n", ce.Extensions())
	}
	e.DataSchema = "#/airline/book/1.0.0"
	e.ExecutionUnits = 0
	b, _ = e.Encode()
	var c2 event.Event
	fmt.Println(c2.UnmarshalJSON(b))
	fmt.Println(c2.Validate(), c2.DataSchema())
	c3 := event.New()
	c3.SetID("a")
	c3.SetSource("b")
	c3.SetType("c")
	c3.SetExtension("executionunits", 0.5)
	fmt.Println(c3.Validate())
	c3.SetData("application/json", []byte(`{"x":1}`))
	out, err = c3.MarshalJSON()
	fmt.Println(string(out), err)
	d, err := DecodeEvent(nil, out)
	fmt.Printf("%+v %v\n", d, err)
	for _, in := range []string{``, `{"a":1,"a":2}`, `{"x":[1,{"y":9007199254740993,"z z":1e400}],"0":1e-400,"p":0.10000000000000000001,"q":1e999999999}`, "\"\xff\"", `"\ud800"`, `{"a":[1,2,{"b":tru}]}`, `1 2`, `{"a":1`} {
		_, err := Canonicalize([]byte(in))
		fmt.Println(err)
	}
	c, err := Canonicalize([]byte(`[1.0,1e2,-0,1e21,0e99999999999,0.000001,1e-7,5e-324,"\u20ac\u000f\n</"]`))
	fmt.Println(string(c), err)
	_, err = DecodeEvent(map[string][]string{"ce-id": {"%zz"}, "Ce-Time": {"x"}, "CE-executionunits": {"1e400"}}, []byte(`[1]`))
	fmt.Println(err)
	_, err = DecodeEvent(nil, []byte(`{"id":1,"specversion":"0.3","source":"","type":["x"],"Foo":1,"data":5,"data_base64":"e30=","time":"yesterday","executionunits":"1","q":{}}`))
	fmt.Println(err)
}

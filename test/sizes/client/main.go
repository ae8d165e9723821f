// Command client starts a run, follows it, and nothing else.
package main

import (
	"context"
	"fmt"
	"log"

	"agentd/sdk/client"
	"agentd/sdk/wire"
)

func main() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	run, err := c.Start(ctx, client.Request{Agent: "clerk", Input: map[string]string{"message": "Pay the bills."}})
	if err != nil {
		log.Fatal(err)
	}
	for live, err := range c.Follow(ctx, run, wire.Mark{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(live.Type, string(live.Data))
	}
}

// Command service serves a contract, and nothing else.
package main

import (
	"context"
	"log"

	"agentd/sdk/service"
)

func main() {
	weather, err := service.FromFile("weather.yaml")
	if err != nil {
		log.Fatal(err)
	}
	service.Handle(weather, func(_ context.Context, _ service.Call, place map[string]string) (map[string]string, error) {
		return map[string]string{"text": "sunny in " + place["city"]}, nil
	})
	log.Fatal(service.Run(context.Background(), weather))
}

package main

import (
	"context"
)

func openRedis(ctx context.Context) (*system, error) { return openJetStream(ctx) }

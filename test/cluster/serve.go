package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// configVariable names the configuration of a server that a program runs in place of itself.
const configVariable = "AGENTD_CLUSTER_SERVER"

// Serve runs this process as a NATS server, if it was started as one; ok is false when it was not. Programs that start clusters
// call it first: they are the servers' programs, too.
func Serve() (code int, ok bool) {
	config, ok := os.LookupEnv(configVariable)
	if !ok {
		return 0, false
	}
	if err := serve(config); err != nil {
		fmt.Fprintln(os.Stderr, "NATS server ended:", err)
		return 1, true
	}
	return 0, true
}

func serve(config string) error {
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	ns, err := server.NewServer(o)
	if err != nil {
		return err
	}
	ns.ConfigureLogger()
	go func() {
		// Whoever started the server has the other end of the pipe: it ends with them.
		err := obey(os.Stdin)
		fmt.Fprintln(os.Stderr, "NATS server is left alone:", errors.Join(err, io.EOF))
		os.Exit(1)
	}()
	ns.Start()
	ns.WaitForShutdown()
	return nil
}

// Package natsconfig is agentd nats-config.
package natsconfig

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/accounts"
	"agentd/internal/broker"
	"agentd/internal/broker/callout"
	"agentd/internal/config"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type natsConfigFlags struct {
	clients, people, approvers         []string
	services                           []string
	worker, operator                   string
	account, listen, monitor, storeDir string
	tls                                accounts.TLS
	callout                            string
	bcrypt                             bool
}

// CalloutUser is the user of agentd nats-callout.
const CalloutUser = "callout"

// Command is agentd nats-config.
func Command(a *cli.App) *cobra.Command {
	var f natsConfigFlags
	cmd := &cobra.Command{
		Use:   "nats-config",
		Short: "Write a NATS server's configuration in which every role may do its own work and nothing else",
		Long: "nats-config writes the configuration of a NATS server with a user for each role of the configuration: workers, each\n" +
			"service, clients, people at chat front ends, approvers, and the operator. Workers and the operator share the account of\n" +
			"the streams. Every other user has an account that imports exactly the subjects that its work needs. People publish\n" +
			"under their own names alone, which makes those the principals of policies. It connects to nothing. docs/security.md\n" +
			"says what is enforced by it and what is not.\n\n" +
			"No password is written. The server reads them from its environment (AGENTD_<USER>_PASSWORD), or --bcrypt reads them\n" +
			"from that of this command and writes their hashes. A user whose name is the public key of an nkey (U…) has no password.",
		Example: "  agentd nats-config --client shop --person ann --approver jane --approver joe=finance > nats.conf\n" +
			"  AGENTD_WORKER_PASSWORD=… nats-server -c nats.conf",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.WithAgents()
			if err != nil {
				return err
			}
			return write(a, cfg, f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.clients, "client", []string{"client"}, "programs that start runs")
	flags.StringSliceVar(&f.people, "person", nil, "people who start runs and answer questions at a chat front end")
	flags.StringArrayVar(&f.approvers, "approver", nil, "who decides and answers: NAME, or NAME=DOMAIN,DOMAIN… (default domain: human.interaction)")
	flags.StringArrayVar(&f.services, "service", nil, "one user for a program that answers several types: NAME=TYPE,TYPE…")
	flags.StringVar(&f.worker, "worker", "worker", "user of the workers")
	flags.StringVar(&f.operator, "operator", "operator", "user who provisions and operates")
	flags.StringVar(&f.callout, "callout", "", "public key of agentd nats-callout, which lets approvers in who logged in to the console")
	flags.StringVar(&f.account, "account", "AGENTD", "the account of workers and operators; every other user has one of its own, ACCOUNT_USER")
	flags.StringVar(&f.listen, "listen", "0.0.0.0:4222", "address that the server listens on")
	flags.StringVar(&f.monitor, "monitor", "", "address of the server's monitoring port, such as 127.0.0.1:8222 (default: none)")
	flags.StringVar(&f.storeDir, "store-dir", "/data", "folder of the server; its streams are in jetstream there")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "the server's certificate, a PEM file")
	flags.StringVar(&f.tls.Key, "tls-key", "", "the certificate's key, a PEM file")
	flags.StringVar(&f.tls.CA, "tls-ca", "", "also ask clients for a certificate of this authority, a PEM file")
	flags.BoolVar(&f.bcrypt, "bcrypt", false, "write bcrypt hashes of the passwords in this command's environment")
	return cmd
}

func write(a *cli.App, cfg *config.Config, f natsConfigFlags) error {
	if (f.tls.Cert == "") != (f.tls.Key == "") || f.tls.CA != "" && f.tls.Cert == "" {
		return cli.Usagef("TLS needs both --tls-cert and --tls-key")
	}
	if n := len(cfg.References); n > 0 {
		fmt.Fprintf(a.Err, "%s from the registry: what answers those gets no user, as this command connects to nothing; put the contracts into files\n",
			show.Count(n, "contract"))
	}
	approvers, err := members(f.approvers)
	if err != nil {
		return cli.Usage(err)
	}
	services, err := programs(f.services)
	if err != nil {
		return cli.Usage(err)
	}
	plan := accounts.Plan{
		Subjects: setup.Subjects(cfg), Broker: setup.Plan(cfg), Journals: cfg.StoreKind() == config.StoreJetStream, Identity: cfg.Identity,
		Clients: named(f.clients), People: named(f.people), Approvers: approvers, Programs: services, WorkerName: f.worker, OperatorName: f.operator,
	}
	if f.callout != "" {
		if !callout.IsPublic(f.callout) {
			return cli.Usagef("--callout: want the public key that agentd nats-callout --new-key printed, which begins with A")
		}
		plan.CalloutName = CalloutUser
	}
	users, err := accounts.Users(plan)
	if err != nil {
		return err
	}
	server := accounts.Server{Account: f.account, Listen: f.listen, Monitor: f.monitor, StoreDir: f.storeDir, TLS: f.tls, Callout: f.callout}
	if f.bcrypt {
		if server.Hash, err = passwords(users); err != nil {
			return err
		}
	}
	return accounts.Write(a.Out, server, users)
}

func named(names []string) []accounts.Member {
	list := make([]accounts.Member, len(names))
	for i, n := range names {
		list[i].Name = n
	}
	return list
}

// members reads approvers: NAME, or NAME=DOMAIN,DOMAIN.
func members(texts []string) ([]accounts.Member, error) {
	var list []accounts.Member
	for _, text := range texts {
		name, domains, several := strings.Cut(text, "=")
		m := accounts.Member{Name: name}
		if several {
			m.Domains = strings.Split(domains, ",")
		}
		for _, d := range m.Domains {
			if err := wire.CheckDomain(d); err != nil || d == "" {
				return nil, fmt.Errorf("--approver %s: want NAME or NAME=DOMAIN,DOMAIN…", text)
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// programs reads services: NAME=TYPE,TYPE.
func programs(texts []string) ([]accounts.Program, error) {
	var list []accounts.Program
	for _, text := range texts {
		name, types, ok := strings.Cut(text, "=")
		if !ok || name == "" || types == "" {
			return nil, fmt.Errorf("--service %s: want NAME=TYPE,TYPE…", text)
		}
		list = append(list, accounts.Program{Name: name, Types: strings.Split(types, ",")})
	}
	return list, nil
}

// passwords are those of the environment; every one that is missing is reported.
func passwords(users []accounts.User) (func(string) (string, error), error) {
	var missing []string
	for _, u := range users {
		if variable := accounts.PasswordVariable(u.Name); !broker.IsNKey(u.Name) && os.Getenv(variable) == "" {
			missing = append(missing, variable)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, sdk.Errorf(sdk.CodeConfig, "--bcrypt needs the passwords in the environment; these are not set: %s", strings.Join(missing, ", "))
	}
	return func(variable string) (string, error) { return os.Getenv(variable), nil }, nil
}

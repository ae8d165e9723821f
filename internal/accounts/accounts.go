// Package accounts says what each role may do on a NATS server, and writes that as a server's configuration: workers and
// operators share the account of the streams, and every other user has an account that imports only what it may use. Rights
// are by subject alone, so they are made from the very functions that make the subjects. docs/security.md explains them.
package accounts

import (
	"fmt"
	"strings"

	"agentd/internal/broker/provision"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Role is what a user is there for.
type Role string

// The roles.
const (
	RoleWorker   Role = "worker"
	RoleService  Role = "service"
	RoleClient   Role = "client"
	RolePerson   Role = "person"
	RoleApprover Role = "approver"
	RoleOperator Role = "operator"
	// RoleCallout answers who shows a proof of a login in place of a password.
	RoleCallout Role = "callout"
)

// User is a user of the server with everything that it may do. Whatever is not allowed is refused.
type User struct {
	Name string
	Role Role
	// About is who it is for, in a line.
	About string
	// Publish and Subscribe are subjects; Deny takes back some of Publish.
	Publish, Deny, Subscribe []string
	// Answers are the subjects on which the user answers requests; they are among Subscribe.
	Answers []string
	// Asked says that the server itself asks this user, which imports nothing and may publish its answers alone.
	Asked bool
}

// trusted reports whether the user is in the account of the streams. Whoever is there may have the server publish anything
// there: on the reply subject of a request, and on the delivery subject of a consumer. All others have an account each.
func (u *User) trusted() bool { return u.Role == RoleWorker || u.Role == RoleOperator }

// Member is a user with a name of its own, which is also the principal that the broker enforces.
type Member struct {
	Name string
	// Domains are those an approver answers for; empty is sdk.HumanDomain.
	Domains []string
}

// Program is a user that answers calls of several types.
type Program struct {
	Name string
	// Types are those of contracts, in whatever domains.
	Types []string
}

// Plan says who there is.
type Plan struct {
	Subjects wire.Subjects
	// Broker is what is provisioned: agents, and services with a user each.
	Broker provision.Plan
	// Journals says that JetStream keeps the runs.
	Journals bool
	// Identity makes clients publish under their own names alone.
	Identity                   bool
	Clients, People, Approvers []Member
	// Programs answer the calls of several types with one user, in place of a user for each type.
	Programs                 []Program
	WorkerName, OperatorName string
	// CalloutName is the user whom the server asks who somebody is (agentd nats-callout); empty is none.
	CalloutName string
}

// Users are the users of a plan, sorted as they are explained: worker, services, clients, people, approvers, operator. The
// error reports every name that cannot be one, or is there twice.
func Users(p Plan) ([]User, error) {
	r := rights{p.Subjects, p}
	users := []User{r.worker()}
	programs, err := r.programs()
	if err != nil {
		return nil, err
	}
	users = append(users, programs...)
	for _, m := range p.Clients {
		users = append(users, r.client(m))
	}
	for _, m := range p.People {
		users = append(users, r.person(m))
	}
	for _, m := range p.Approvers {
		users = append(users, r.approver(m))
	}
	users = append(users, r.operator())
	if p.CalloutName != "" {
		users = append(users, r.callout())
	}
	return users, check(users)
}

// Approver is the user of somebody who decides and answers, as Users has it.
func Approver(p Plan, m Member) User {
	return rights{p.Subjects, p}.approver(m)
}

// AccountOf is the name of the account that a user has alone, beside that of the streams.
func AccountOf(streams, user string) string { return streams + "_" + user }

// forPeople are the types of calls that no service answers.
var forPeople = []string{sdk.TypePermissionRequest, sdk.TypePlanReview, sdk.TypeQuestion, sdk.TypeConversationTurn}

func check(users []User) error {
	var faults []sdk.Fault
	seen := map[string]bool{}
	for _, u := range users {
		// Two names that differ in other characters alone would share their inboxes.
		if !token(u.Name) {
			faults = append(faults, sdk.Fault{Path: string(u.Role), Expected: "a name of 1 to 64 letters, digits, _ and -", Got: fmt.Sprintf("%q", u.Name)})
		}
		if seen[u.Name] {
			faults = append(faults, sdk.Fault{Path: string(u.Role), Expected: "a name that no other user has", Got: fmt.Sprintf("%q", u.Name)})
		}
		seen[u.Name] = true
	}
	if faults == nil {
		return nil
	}
	return &sdk.Error{Code: sdk.CodeConfig, Message: "these cannot be the users of a server", Faults: faults}
}

func token(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

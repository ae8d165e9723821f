package broker

import (
	"slices"
	"testing"

	"agentd/internal/broker/provision"
	"agentd/sdk"
)

// TestUnserved_IsNotSaidOfPeople: a desk reads no consumer, so nobody seems to be there who answers questions.
func TestUnserved_IsNotSaidOfPeople(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	p := testPlan
	p.Services = append(slices.Clone(p.Services), provision.Service{Domain: sdk.HumanDomain, Type: sdk.TypeQuestion},
		provision.Service{Domain: "finance", Type: sdk.TypePermissionRequest})
	apply(t, c, p)
	for _, s := range p.Services {
		unserved, err := c.Unserved(testContext(t), s.Domain, s.Type)
		if want := s.Domain == "airline"; err != nil || unserved != want {
			t.Errorf("%s in %s: unserved %t, %v; want %t", s.Type, s.Domain, unserved, err, want)
		}
	}
}

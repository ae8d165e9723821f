package docs

import (
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// docs/go.md promises this: whoever is outside this module cannot name an internal type, make a value of it or implement it.
func TestSDK_HasNoInternalTypeInAPublicSignature(t *testing.T) {
	t.Parallel()
	const mode = packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile
	loaded, err := packages.Load(&packages.Config{Dir: root, Mode: mode}, "./sdk/...")
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) < 6 {
		t.Errorf("only %d packages were found", len(loaded))
	}
	for _, p := range loaded {
		for _, fault := range p.Errors {
			t.Fatal(fault)
		}
		shown := signatures{seen: map[types.Type]bool{}}
		for _, name := range p.Types.Scope().Names() {
			if object := p.Types.Scope().Lookup(name); object.Exported() {
				shown.visit(p.PkgPath+"."+name, object.Type())
			}
		}
		for _, fault := range shown.internal {
			t.Error(fault)
		}
	}
}

// signatures collects the internal types that one can see from exported declarations.
type signatures struct {
	seen     map[types.Type]bool
	internal []string
}

// visit looks at a type that stands at a place such as agentd/sdk/client.Options.Logger.
func (s *signatures) visit(at string, of types.Type) {
	if s.seen[of] {
		return
	}
	s.seen[of] = true
	switch of := of.(type) {
	case *types.Alias:
		if !s.isInternal(at, of.Obj()) {
			s.visit(at, of.Rhs())
		}
	case *types.Named:
		s.named(at, of)
	case *types.Struct:
		for field := range of.Fields() {
			if field.Exported() {
				s.visit(at+"."+field.Name(), field.Type())
			}
		}
	case *types.Interface:
		// All of them: who implements the interface has to write each.
		for method := range of.Methods() {
			s.visit(at+"."+method.Name(), method.Type())
		}
	case *types.Signature:
		for of := range slices.Values([]*types.Tuple{of.Params(), of.Results()}) {
			for v := range of.Variables() {
				s.visit(at, v.Type())
			}
		}
	case *types.Map:
		s.visit(at, of.Key())
		s.visit(at, of.Elem())
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		s.visit(at, of.Elem())
	}
}

// named looks at a named type: of agentd's own also at what it is made of and at its methods.
func (s *signatures) named(at string, of *types.Named) {
	if s.isInternal(at, of.Obj()) {
		return
	}
	for argument := range of.TypeArgs().Types() {
		s.visit(at, argument)
	}
	if of.Obj().Pkg() == nil || !strings.HasPrefix(of.Obj().Pkg().Path(), "agentd/") {
		return
	}
	s.visit(at, of.Underlying())
	for method := range of.Methods() {
		if method.Exported() {
			s.visit(at+"."+method.Name(), method.Type())
		}
	}
}

func (s *signatures) isInternal(at string, name *types.TypeName) bool {
	if name.Pkg() == nil || !strings.HasPrefix(name.Pkg().Path(), "agentd/internal/") {
		return false
	}
	s.internal = append(s.internal, at+" shows "+name.Pkg().Path()+"."+name.Name())
	return true
}

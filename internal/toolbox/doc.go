// Package toolbox is what models are shown of an agent's tools, their definitions and names, and what their calls and
// answers are held to.
package toolbox

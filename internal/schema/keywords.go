package schema

// Keywords and types of JSON Schema.
const (
	keySchema      = "$schema"
	keyID          = "$id"
	keyRef         = "$ref"
	keyAnchor      = "$anchor"
	keyDefs        = "$defs"
	keyDefinitions = "definitions"
	keyDefault     = "default"
	keyDescription = "description"
	keyFormat      = "format"
	keyItems       = "items"
	keyProperties  = "properties"
	keyRequired    = "required"
	keyAllOf       = "allOf"
	keyAnyOf       = "anyOf"
	keyOneOf       = "oneOf"
	keyNot         = "not"
	keyDependent   = "dependentSchemas"
	keyType        = "type"
	typeObject     = "object"
	typeArray      = "array"
)

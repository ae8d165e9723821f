module agentd/test/deploy

go 1.26.0

require agentd v0.0.0

replace agentd => ../..

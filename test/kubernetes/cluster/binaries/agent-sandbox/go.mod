module cay.test/agent-sandbox

go 1.26.0

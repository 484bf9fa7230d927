/** @module Cay for Claude Managed Agents (self-hosted environments) and for the Claude Agent SDK. */
export { cayToolset, type CayToolsetOptions } from './toolset.ts';
export { spawnClaudeCode, type SpawnClaudeCodeOptions } from './spawn-claude-code.ts';

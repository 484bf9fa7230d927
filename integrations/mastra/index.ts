/**
 * @module Cay as a sandbox of Mastra's workspaces.
 *
 *     const workspace = new Workspace({ sandbox: new CaySandbox({ id: 'project-1' }) });
 *
 * The same `id` is the same sandbox, in whatever program. Checkpoints are snapshots, and a clone can start
 * from one.
 */
export { CaySandbox, type CaySandboxOptions } from './sandbox.ts';
export { CayProcessManager } from './processes.ts';

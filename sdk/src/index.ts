/** @module The client of Cay: sandboxes, their commands, files and ports. */
export * from './protocol/index.ts';
export { enforcementReports, runEnforcementReport } from './enforcement.ts';
export { Files, type Content } from './files.ts';
export { Interpreter, type CodeExecution, type CodeListeners, type RunCodeOptions } from './interpreter.ts';
export { Process, type Output } from './process.ts';
export { Sandbox, type ListOptions } from './sandbox.ts';
export type { Command, LogsOptions } from './sandbox-commands.ts';
export { Bucket } from './bucket.ts';
export { Secrets } from './secrets.ts';
export { Template, type TemplateBuildOptions } from './template.ts';
export { describeTools, ToolBox, type ToolOptions } from './tools.ts';
export { Volume } from './volume.ts';
export type { WaitOptions } from './wait.ts';
export { bytesOf, connect, DEFAULT_URL, type ConnectOptions, type Transport } from './transport.ts';

/**
 * @module The client alone, without the schemas: for programs that must start fast or be small.
 * The types of the contract are here all the same.
 */
export type * from './protocol/index.ts';
export { CayError, ERRORS, isCayError, isErrorCode } from './protocol/error.ts';
export { shellExitCode } from './protocol/exit-code.ts';
export { SIGNALS } from './protocol/signal.ts';
export { enforcementReports, runEnforcementReport } from './enforcement.ts';
export { Files, type Content } from './files.ts';
export { Interpreter, type CodeExecution, type CodeListeners, type RunCodeOptions } from './interpreter.ts';
export { Network } from './network.ts';
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

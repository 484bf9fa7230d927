/** @module The contract of Cay: one file a noun, shared by server, SDK and command line. */
export * from './audit.ts';
export * from './capabilities.ts';
export * from './command.ts';
export * from './error.ts';
export * from './exit-code.ts';
export * from './file.ts';
export * from './health.ts';
export * from './id.ts';
export * from './request.ts';
export * from './resource.ts';
export * from './sandbox.ts';
export * from './signal.ts';
export * from './snapshot.ts';
export * from './stats.ts';
export * from './status.ts';
export * from './validation.ts';
export * from './webhook.ts';

/**
 * @module Cay as a sandbox client of the OpenAI Agents SDK.
 *
 *     await new Runner().run(agent, 'Fix the test', { sandbox: { client: new CaySandboxClient() } });
 */
export { CaySandboxClient, type CaySandboxClientOptions } from './client.ts';
export { CaySandboxSession, type CaySessionState } from './session.ts';

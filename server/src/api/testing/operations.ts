/** The operations of an OpenAPI document, with a plausible request for each. */
interface Document {
  paths: Record<
    string,
    Record<
      string,
      {
        operationId: string;
        security: unknown[];
        'x-cay-access'?: string;
        responses: Record<string, unknown>;
        requestBody?: { content: Record<string, unknown> };
      }
    >
  >;
}

export interface Operation {
  id: string;
  method: string;
  path: string;
  open: boolean;
  access: string | undefined;
  statuses: number[];
  jsonBody: boolean;
  body: unknown;
  url(sandbox: string): string;
}

const QUERIES: Record<string, string> = {
  readOutput: '?follow=0',
  readFile: '?path=/etc/passwd',
  writeFile: '?path=/tmp/file',
  removeFile: '?path=/tmp/moved',
  statFile: '?path=/tmp',
  listFiles: '?path=/tmp',
  getAttributes: '?path=/tmp',
  setAttributes: '?path=/tmp',
  watchFiles: '?path=/tmp',
  packFiles: '?path=/tmp',
  unpackFiles: '?path=/tmp/unpacked',
  diffSandbox: '?from=now',
  exportFiles: '?path=/tmp',
  importVolume: '?name=imported',
};

const BODIES: Record<string, unknown> = {
  createSandbox: {},
  validateSandbox: {},
  updateSandbox: { labels: { a: 'b' } },
  stopSandbox: {},
  exec: { argv: ['true'] },
  launchCommand: { argv: ['true'] },
  writeStdin: 'text',
  signalCommand: { signal: 'SIGTERM' },
  resizeCommand: { cols: 80, rows: 24 },
  writeFile: 'text',
  setAttributes: { attributes: { 'user.a': 'YQ==' } },
  makeDirectory: { path: '/tmp/directory' },
  moveFile: { from: '/tmp/file', to: '/tmp/moved' },
  changeMode: { path: '/tmp/file', mode: 0o600 },
  changeOwner: { path: '/tmp/file', owner: 'user' },
  makeSymlink: { path: '/tmp/link', target: '/etc' },
  unpackFiles: '',
  exposePort: {},
  publishPort: { port: 3000 },
  createKey: { name: 'new' },
  createProject: { name: 'new' },
  createWebhook: { url: 'https://hooks.example/' },
  updateProject: { quota: {} },
  takeSnapshot: {},
  takeTurn: { waitMs: 0 },
  importSnapshot: 'not an archive',
  rollbackSandbox: { to: 1 },
  moveSandbox: { platform: 'other' },
  forkSandbox: {},
  pauseSandbox: {},
  leaseSandbox: { forMs: 1000 },
  runCode: { code: '1' },
  createCodeContext: {},
  setNetwork: { policy: 'none' },
  addNetworkRules: { allow: ['api.example.org:443'] },
  answerNetworkApproval: { verdict: 'deny' },
  setSecret: { value: 'a value' },
  createVolume: { name: 'new' },
  importVolume: '',
  saveTemplate: { snapshot: 1 },
};

export function operationsOf(document: Document): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      id: operation.operationId,
      method: method.toUpperCase(),
      path,
      open: operation.security.length === 0,
      access: operation['x-cay-access'],
      statuses: Object.keys(operation.responses)
        .filter((status) => status !== 'default')
        .map(Number),
      jsonBody: operation.requestBody !== undefined && 'application/json' in operation.requestBody.content,
      body: BODIES[operation.operationId],
      url: (sandbox) =>
        path
          .replace('{id}', sandbox)
          .replace('{cmd}', 'known')
          .replace('{port}', '3000')
          .replace('{hostPort}', '3000')
          .replace('{key}', 'key_unknown')
          .replace('{webhook}', 'whk_unknown')
          .replace('{snapshot}', `snap_${'0'.repeat(20)}`)
          .replace('{volume}', 'unknown')
          .replace('{context}', 'unknown')
          .replace('{approval}', 'apr_unknown')
          .replace('{name}', 'unknown')
          .replace('{project}', 'unknown') + (QUERIES[operation.operationId] ?? ''),
    })),
  );
}

/** The environments of the Python package in their frameworks' own suites. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { pythonSuite } from '../python-suite.ts';

const SHARED = ['httpx==0.28.1', 'pytest==9.2.0', 'pytest-asyncio==1.5.0'];

describe('the Python package', () => {
  let server: LiveServer;
  beforeAll(async () => void (server = await liveServer({ CAY_RUNTIME: 'runsc' })));
  afterAll(() => server?.[Symbol.asyncDispose]());

  it.for([
    ["Inspect AI's self_check", ['inspect_ai==0.3.285'], 'tests/test_inspect.py', 44],
    // Of deepagents 0.7 this release of the tests does not know the new answers of `glob`.
    [
      "LangChain's standard tests",
      ['deepagents==0.6.12', 'langchain-tests==1.1.9'],
      'tests/test_deepagents.py',
      86,
    ],
    // None is published: the calls of the framework's local sandbox, and an agent with a scripted model.
    ['the calls of OpenAI Agents', ['openai-agents==0.24.0'], 'tests/test_openai_agents.py', 4],
    // The newest release that its dependencies are there for. It wants Python 3.12.
    ['the calls of Harbor', ['harbor==0.24.0', 'dockerfile-parse==2.0.1'], 'tests/test_harbor.py', 1],
  ] as const)('passes %s', { timeout: 600_000 }, ([, packages, file, passes], test) =>
    pythonSuite(test, server, {
      packages: [...SHARED, ...packages],
      cwd: import.meta.dirname,
      files: [file],
      passes,
    }),
  );
});

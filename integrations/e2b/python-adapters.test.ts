/** Python adapters that others wrote for E2B, unmodified, against a live server. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { pythonSuite } from '../python-suite.ts';

const PACKAGES = [
  'langchain-e2b==0.0.6',
  'langchain-tests==1.1.9',
  'openai-agents==0.24.0',
  'e2b==2.63.0',
  'pytest==9.2.0',
  'pytest-asyncio==1.5.0',
];

describe('adapters for E2B in Python', () => {
  let server: LiveServer;
  beforeAll(async () => void (server = await liveServer({ CAY_RUNTIME: 'runsc' })));
  afterAll(() => server?.[Symbol.asyncDispose]());

  it(
    "langchain-e2b passes LangChain's standard tests, and OpenAI Agents its own calls",
    { timeout: 600_000 },
    (test) =>
      pythonSuite(test, server, {
        packages: PACKAGES,
        cwd: import.meta.dirname,
        files: ['test_adapters.py'],
        passes: 87,
      }),
  );
});

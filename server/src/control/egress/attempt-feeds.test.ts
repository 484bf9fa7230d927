import { type EgressAttempt, newId, type SandboxId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { openAttemptFeeds } from './attempt-feeds.ts';

const attempt = (sandboxId: SandboxId, id: string) => ({ sandboxId, id }) as EgressAttempt;

describe('attempts that are followed', () => {
  it('are those of one sandbox, however many another has at once', async () => {
    const feeds = openAttemptFeeds();
    const [mine, theirs] = [newId('sbx'), newId('sbx')];
    const reading = feeds.follow(mine, undefined)[Symbol.asyncIterator]();
    for (let count = 0; count < 20_000; count++) feeds.send(attempt(theirs, `${count}`));
    feeds.send(attempt(mine, 'own'));
    expect(await reading.next()).toMatchObject({ done: false, value: { id: 'own' } });
    feeds.close();
    expect(await reading.next()).toMatchObject({ done: true });
  });

  it('end for a reader that is too far behind, and go on for others', async () => {
    const feeds = openAttemptFeeds();
    const id = newId('sbx');
    const gone = new AbortController();
    const slow = feeds.follow(id, gone.signal);
    for (let count = 0; count < 2000; count++) feeds.send(attempt(id, `${count}`));
    const seen = await Array.fromAsync(slow);
    expect(seen.length).toBe(1001);
    const other = feeds.follow(id, gone.signal)[Symbol.asyncIterator]();
    feeds.send(attempt(id, 'later'));
    expect((await other.next()).value).toMatchObject({ id: 'later' });
    gone.abort();
    expect((await other.next()).done).toBe(true);
    feeds.send(attempt(id, 'nobody'));
  });
});

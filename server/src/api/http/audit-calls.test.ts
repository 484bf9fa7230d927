import { describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import type { NewEvent } from '../../records/events/events.ts';
import { callAudit } from './audit-calls.ts';

describe('the audit of refused calls', () => {
  it('writes one event a minute for anonymous clients of one network, whatever their addresses', async () => {
    const noted: NewEvent[] = [];
    const audit = callAudit({ append: async (event: NewEvent) => void noted.push(event) });
    const door = audit.authenticator({
      authenticate: () => Promise.reject(new CayError('unauthenticated', 'no')),
    });
    for (let host = 0; host < 500; host++) {
      const caller = { headers: {}, socket: { remoteAddress: `2001:db8:1:2::${host.toString(16)}` } };
      audit.turnedAway(caller, new CayError('unauthenticated', 'no'), { id: 'sbx_1', project: 'prj_1' });
      await expect(door.authenticate(caller)).rejects.toThrow('no');
    }
    expect(noted.map(({ type }) => type).toSorted()).toEqual(['key.refused', 'token.refused']);
  });
});

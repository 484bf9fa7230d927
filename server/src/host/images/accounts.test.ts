import { describe, expect, it } from 'vitest';
import { withGroup, withUser } from './accounts.ts';

const shell = '/bin/sh';

describe('accounts', () => {
  it('get the user on a line of its own, whether or not the last one was ended', () => {
    expect(withUser('root:x:0:0::/root:/bin/sh', { shell })).toBe(
      'root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n',
    );
    expect(withGroup('root:x:0:\n')).toBe('root:x:0:\nuser:x:1000:\n');
  });

  it('of an image that has such a user are left as they are', () => {
    expect(withUser('root:x:0:0::/root:\nuser:x:500:500::/u:/bin/zsh\n', { shell })).toBeUndefined();
    expect(withGroup('user:x:500:\n')).toBeUndefined();
  });

  it('of an image without any get root as well', () => {
    expect(withUser('', { shell })).toBe(
      'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n',
    );
    expect(withGroup('\n')).toBe('root:x:0:\nuser:x:1000:\n');
  });

  it('are not fooled by a user whose name only begins the same', () => {
    expect(withUser('user2:x:7:7::/:/bin/sh\n', { shell })).toContain('\nuser:x:1000:');
  });
});

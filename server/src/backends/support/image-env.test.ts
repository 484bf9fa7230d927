import { describe, expect, it } from 'vitest';
import { imageEnvOf } from './image-env.ts';

describe('the environment of an image', () => {
  it('is taken, apart from what the user of a command decides', () => {
    expect(imageEnvOf(['PATH=/a:/b', 'EMPTY=', 'EQUALS=a=b', 'HOME=/root', 'USER=root'])).toEqual({
      PATH: '/a:/b',
      EMPTY: '',
      EQUALS: 'a=b',
    });
  });

  it('may have lines that are no variables', () => {
    expect(imageEnvOf(['=x'])).toEqual({});
  });
});
